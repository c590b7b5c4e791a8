"""What programs do with peewee; prints what came back. Arguments: port, database."""

import datetime
import sys
from decimal import Decimal

import peewee as pw
from playhouse.migrate import PostgresqlMigrator, migrate
from playhouse.postgres_ext import ArrayField, BinaryJSONField, PostgresqlExtDatabase
from playhouse.reflection import generate_models

try:
    from playhouse.postgres_ext import Psycopg3Database as Base
except ImportError:
    Base = PostgresqlExtDatabase
db = Base(sys.argv[2], host="127.0.0.1", port=int(sys.argv[1]), user="kvorum")


class Model(pw.Model):
    class Meta:
        database = db


class User(Model):
    name = pw.CharField(max_length=40, unique=True)
    age = pw.IntegerField(null=True)
    joined = pw.DateTimeField(default=lambda: datetime.datetime(2024, 2, 29, 12))
    bal = pw.DecimalField(max_digits=10, decimal_places=2, default=0)
    ok = pw.BooleanField(default=False)
    day = pw.DateField(null=True)
    tags = ArrayField(pw.TextField, null=True, index=False)
    info = BinaryJSONField(null=True, index=False)
    uid = pw.UUIDField(null=True)


class Post(Model):
    user = pw.ForeignKeyField(User, backref="posts", on_delete="CASCADE")
    title = pw.TextField()
    views = pw.BigIntegerField(default=0)

    class Meta:
        indexes = ((("user", "title"), True),)


class Pair(Model):
    a = pw.IntegerField()
    b = pw.IntegerField()

    class Meta:
        primary_key = pw.CompositeKey("a", "b")


def step(name):
    def run(fn):
        try:
            print(name, "=>", fn())
        except Exception as e:
            print(name, "EXC", type(e).__name__, str(e).splitlines()[0])

    return run


@step("create")
def _():
    db.create_tables([User, Post, Pair])
    return sorted(db.get_tables())


@step("insert")
def _():
    u = User.create(
        name="ann",
        age=30,
        tags=["x", "y"],
        info={"a": {"b": 1}},
        bal=Decimal("1.50"),
        day=datetime.date(2024, 2, 29),
    )
    Post.create(user=u, title="p1")
    return u.id, User.insert_many(
        [{"name": "bob", "age": 5}, {"name": "cyd", "age": None}]
    ).execute() is not None


@step("select")
def _():
    return [
        (u.name, u.age, u.tags, u.info, u.bal, u.joined) for u in User.select().order_by(User.name)
    ]


@step("where")
def _():
    return (
        User.select().where((User.age > 10) | User.name.startswith("b")).count(),
        User.select().where(User.tags.contains("x")).count(),
        User.select().where(User.info["a"]["b"].cast("int") == 1).count(),
        User.select().where(User.info.contains({"a": {"b": 1}})).count(),
        User.select().where(User.name.in_(["ann", "bob"])).count(),
        User.select().where(User.name.ilike("A%")).count(),
        User.select().where(User.day.year == 2024).count(),
        User.select().where(User.id.in_(Post.select(Post.user))).count(),
    )


@step("join")
def _():
    return list(
        User.select(User.name, pw.fn.COUNT(Post.id).alias("n"))
        .join(Post, pw.JOIN.LEFT_OUTER)
        .group_by(User.name)
        .order_by(User.name)
        .tuples()
    )


@step("insert subquery")
def _():
    return (
        User.insert(name="sub", age=User.select(pw.fn.MAX(User.age) + 1))
        .returning(User.age)
        .execute()[0]
        .age
    )


@step("upsert")
def _():
    User.insert(name="ann", age=77).on_conflict(
        conflict_target=[User.name], preserve=[User.age]
    ).execute()
    User.insert(name="ann", age=1).on_conflict(
        conflict_target=[User.name], update={User.age: User.select(pw.fn.COUNT(User.id))}
    ).execute()
    User.insert(name="ann").on_conflict_ignore().execute()
    return (
        User.get(name="ann").age,
        User.get_or_create(name="dan")[1],
        User.get_or_create(name="dan")[1],
    )


@step("update")
def _():
    n = (
        User.update(age=User.age + 1, bal=pw.Case(None, [(User.age > 5, 2)], 1))
        .where(User.name << ["bob", "cyd"])
        .execute()
    )
    r = list(
        User.update(ok=True)
        .where(User.name == "bob")
        .returning(User.name, User.ok)
        .tuples()
        .execute()
    )
    u = User.get(name="cyd")
    u.age = 9
    u.save()
    return n, r, User.get_by_id(u.id).age, User.bulk_update([u], [User.age])


@step("transaction")
def _():
    try:
        with db.atomic():
            User.create(name="zed")
            with db.atomic() as sp:
                User.create(name="yan")
                sp.rollback()
            raise ValueError
    except ValueError:
        pass
    with db.atomic():
        with db.savepoint():
            Pair.create(a=1, b=2)
        locked = User.select().where(User.name == "bob").for_update().get().name
    return User.select().where(User.name << ["zed", "yan"]).count(), Pair.select().count(), locked


@step("window")
def _():
    return list(
        User.select(User.name, pw.fn.ROW_NUMBER().over(order_by=[User.name]))
        .order_by(User.name)
        .limit(2)
        .tuples()
    )


@step("cte")
def _():
    cte = User.select(User.id, User.name).cte("w", columns=("id", "name"))
    return list(cte.select_from(cte.c.name).order_by(cte.c.name).limit(2).tuples())


@step("integrity")
def _():
    with db.atomic():
        User.create(name="ann")


@step("introspection")
def _():
    return (
        [c.name for c in db.get_columns("user")],
        sorted(i.name for i in db.get_indexes("post")),
        [(f.column, f.dest_table) for f in db.get_foreign_keys("post")],
        db.get_primary_keys("pair"),
        sorted(generate_models(db)),
    )


@step("migrate")
def _():
    m = PostgresqlMigrator(db)
    migrate(
        m.add_column("post", "slug", pw.CharField(max_length=20, default="s")),
        m.add_index("post", ("slug",), False),
        m.rename_column("post", "slug", "slug2"),
        m.drop_not_null("post", "slug2"),
    )
    migrate(m.drop_column("post", "slug2"))
    return [c.name for c in db.get_columns("post")]


@step("delete")
def _():
    return (
        User.delete().where(User.name == "bob").execute(),
        User.get(name="ann").delete_instance(recursive=True),
        Post.select().count(),
    )


@step("server side")
def _():
    with db.atomic():
        return len(list(pw.ModelSelect(User, [User.name]).order_by(User.name)))


@step("drop")
def _():
    db.drop_tables([Pair, Post, User])
    return db.get_tables()
