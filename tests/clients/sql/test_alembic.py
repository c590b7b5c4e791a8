"""Alembic: autogenerate finds nothing to do behind its own migrations, and what was changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import alembic
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.dialects import postgresql as pg

from tests.clients.sql.conftest import Sql

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
_ENV = """
from alembic import context
engine = context.config.attributes["engine"]
with engine.connect() as connection:
    context.configure(
        connection=connection, target_metadata=context.config.attributes["metadata"],
        transaction_per_migration=True, compare_type=True, compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()
"""


def _model() -> sa.MetaData:
    metadata = sa.MetaData()
    sa.Table(
        "a",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(20), nullable=False, unique=True),
        sa.Column("n", sa.Numeric(10, 2), server_default="0"),
        sa.Column("t", sa.DateTime(timezone=True), server_default=sa.func.now()),
        sa.Column("b", sa.Boolean, server_default=sa.true()),
        sa.Column("j", pg.JSONB),
        sa.Column("u", pg.UUID),
        sa.Column("words", pg.ARRAY(sa.Text)),
        sa.Column("f", sa.Float),
        sa.Column("d", sa.Date),
        sa.Column("clock", sa.Time),
        sa.Column("span", sa.Interval),
        sa.Column("raw", sa.LargeBinary),
        sa.Column("big", sa.BigInteger),
        sa.Column("small", sa.SmallInteger),
        sa.Column("text", sa.Text, server_default="xy"),
        sa.Column("fixed", sa.CHAR(3)),
        sa.Column("kind", sa.Enum("x", "y", native_enum=False)),
        sa.Column("twice", sa.Integer, sa.Computed("small * 2", persisted=True)),
        sa.CheckConstraint("n >= 0", name="a_n"),
        sa.Index("a_t_name", "t", "name"),
    )
    sa.Table(
        "b",
        metadata,
        sa.Column("x", sa.Integer, sa.Identity(always=True), primary_key=True),
        sa.Column("a_id", sa.ForeignKey("a.id", ondelete="CASCADE"), index=True),
        sa.Column("y", sa.Integer),
        sa.UniqueConstraint("a_id", "y", name="b_both"),
    )
    return metadata


@pytest.fixture
def engine(sql: Sql) -> Iterator[sa.Engine]:
    made = sa.create_engine(sql.url())
    yield made
    made.dispose()


def _config(path: Path, engine: sa.Engine, metadata: sa.MetaData) -> Config:
    (path / "versions").mkdir()
    (path / "env.py").write_text(_ENV)
    template = Path(alembic.__file__).parent / "templates" / "generic" / "script.py.mako"
    (path / "script.py.mako").write_text(template.read_text())
    config = Config(attributes={"engine": engine, "metadata": metadata})
    config.set_main_option("script_location", str(path))
    config.set_main_option("path_separator", "os")
    return config


def _differences(engine: sa.Engine, metadata: sa.MetaData) -> list[Any]:
    options = {"compare_type": True, "compare_server_default": True}
    with engine.connect() as connection:
        found: list[Any] = compare_metadata(
            MigrationContext.configure(connection, opts=options), metadata
        )
    return found


def test_p1_autogenerate_finds_nothing_behind_its_own_migrations(
    engine: sa.Engine, tmp_path: Path
) -> None:
    """What reflection says of a table differs from what made it: each migration would do it again;
    or a change of the model is not found, or not made.
    """
    metadata = _model()
    config = _config(tmp_path, engine, metadata)
    command.revision(config, "one", autogenerate=True, rev_id="one")
    command.upgrade(config, "head")
    assert _differences(engine, metadata) == []
    a, b = metadata.tables["a"], metadata.tables["b"]
    a.append_column(sa.Column("new", sa.String(5), server_default="q", nullable=False))
    sa.Index("a_new", a.c.new)
    a.append_constraint(sa.UniqueConstraint("name", "big", name="a_name_big"))
    a.c.fixed.type = sa.String(50)
    b.c.y.nullable = False
    assert len(_differences(engine, metadata)) == 5
    command.revision(config, "two", autogenerate=True, rev_id="two")
    command.upgrade(config, "head")
    assert _differences(engine, metadata) == []
    command.downgrade(config, "one")
    assert len(_differences(engine, metadata)) == 5
    command.downgrade(config, "base")
    assert sa.inspect(engine).get_table_names() == ["alembic_version"]
