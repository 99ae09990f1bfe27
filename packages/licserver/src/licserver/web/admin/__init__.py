"""The admin API: the vendor's operations for programs, behind tokens."""

from licserver.web.admin.handlers import ROOT, mount, refuse_path

__all__ = ["ROOT", "mount", "refuse_path"]
