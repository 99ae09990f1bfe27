"""The list that all cases of a server are added to."""

from licconform.cases import Catalogue
from licconform.server.subject import Server

CASES: Catalogue[Server] = Catalogue()
