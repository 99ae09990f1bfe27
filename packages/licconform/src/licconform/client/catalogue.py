"""The list that all cases of a client are added to."""

from licconform.cases import Catalogue
from licconform.client.subject import Client

CASES: Catalogue[Client] = Catalogue()
