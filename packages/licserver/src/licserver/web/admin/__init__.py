"""The admin API: the vendor's operations for programs, behind tokens."""

from licserver.web.admin.app import ROOT, create_admin_api, respond_with_problem

__all__ = ["ROOT", "create_admin_api", "respond_with_problem"]
