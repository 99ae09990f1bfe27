"""The only package that imports SQLAlchemy: schema, engines, migrations, and the queries."""
