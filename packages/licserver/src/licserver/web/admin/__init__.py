"""The admin API: the vendor's operations for programs, behind tokens."""

from licserver.web.admin.app import ROOT, create_admin_api

__all__ = ["ROOT", "create_admin_api"]
