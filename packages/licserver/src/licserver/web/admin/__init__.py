"""The admin API: the vendor's operations for programs, behind tokens."""
