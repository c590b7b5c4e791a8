# mypy: ignore-errors
"""What a project does with its database: each function is one check, in this order."""

import datetime as dt
import uuid
from decimal import Decimal
from io import StringIO
from pathlib import Path

from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction
from django.db.models import (
    Avg,
    Case,
    CharField,
    Count,
    Exists,
    F,
    Max,
    Min,
    OuterRef,
    Q,
    StdDev,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import (
    Cast,
    Coalesce,
    Concat,
    ExtractYear,
    Length,
    RowNumber,
    TruncDay,
    Upper,
)
from django.test import Client
from django.utils import timezone
from shop.models import Author, Book, Tag

CLIENT = Client()


def check_no_changes():
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def permissions():
    assert Permission.objects.count() >= 28, Permission.objects.count()


def create():
    a = Author.objects.create(name="Ann", born=dt.date(1990, 2, 28))
    b = Author.objects.create(name="Bob")
    t = [Tag.objects.create(slug=s) for s in "xyz"]
    for i in range(20):
        bk = Book.objects.create(
            author=a if i % 3 else b,
            title=f"T{i}",
            price=Decimal(i) / 4,
            data={"n": i, "tags": ["a", str(i)], "deep": {"x": None}},
            length=dt.timedelta(hours=i),
            key=uuid.UUID(int=i),
            number=i,
        )
        bk.tags.set(t[: i % 3 + 1] if i % 4 else [])


def lookups():
    assert Book.objects.filter(author__name="Ann").count() == 13
    assert Book.objects.filter(title__icontains="t1").count() == 11
    assert Book.objects.filter(title__iexact="t1").count() == 1
    assert Book.objects.filter(title__regex=r"^T1\d$").count() == 10
    assert Book.objects.filter(price__range=(1, 2)).count() == 5
    assert Book.objects.filter(at__date=timezone.localdate()).count() == 20
    assert Book.objects.filter(at__year=timezone.localdate().year).count() == 20
    assert Book.objects.filter(key=uuid.UUID(int=3)).get().title == "T3"
    assert Book.objects.filter(length__gte=dt.timedelta(hours=18)).count() == 2
    assert Book.objects.filter(tags__slug__in=["x", "y"]).distinct().count() == 15
    assert Book.objects.exclude(tags__slug="x").count() == 5
    assert list(Book.objects.order_by("-price", "id").values_list("number", flat=True)[:3]) == [
        19,
        18,
        17,
    ]
    assert Book.objects.filter(Q(number__lt=3) | Q(number__gt=17)).count() == 5
    assert not Book.objects.filter(pk__in=[]).exists()
    assert Book.objects.in_bulk(field_name="id")
    assert len(list(Book.objects.prefetch_related("tags").select_related("author"))) == 20


def json_lookups():
    assert Book.objects.filter(data__n=5).count() == 1
    assert Book.objects.filter(data__n__gte=15).count() == 5
    assert Book.objects.filter(data__tags__contains=["7"]).count() == 1
    assert Book.objects.filter(data__has_key="deep").count() == 20
    assert Book.objects.filter(data__deep__x=None).count() == 20
    assert Book.objects.filter(data__contains={"n": 3}).count() == 1
    assert Book.objects.filter(data__tags__0="a").count() == 20
    assert Book.objects.order_by("-data__n").first().number == 19
    assert Book.objects.values_list("data__n", flat=True).order_by("id")[3] == 3


def aggregates():
    r = Book.objects.aggregate(
        Count("id"), Sum("price"), Avg("price"), Max("at"), Min("number"), StdDev("number")
    )
    assert r["price__sum"] == Decimal("47.5"), r
    r = list(
        Author.objects.annotate(n=Count("books"), top=Max("books__price"))
        .order_by("name")
        .values_list("name", "n", "top")
    )
    assert r == [("Ann", 13, Decimal("4.75")), ("Bob", 7, Decimal("4.50"))], r
    r = list(
        Tag.objects.annotate(n=Count("book", distinct=True))
        .filter(n__gt=2)
        .order_by("slug")
        .values_list("slug", "n")
    )
    assert r[0] == ("x", 15), r
    r = list(
        Book.objects.annotate(day=TruncDay("at"))
        .values("day")
        .annotate(n=Count("id"), s=Sum("length"))
    )
    assert r[0]["n"] == 20
    r = list(
        Book.objects.values("author__name")
        .annotate(p=Avg("price"))
        .filter(p__gt=1)
        .order_by("author__name")
    )
    assert len(r) == 2


def expressions():
    sub = Book.objects.filter(author=OuterRef("pk")).order_by("-price").values("title")[:1]
    assert list(
        Author.objects.annotate(best=Subquery(sub)).order_by("name").values_list("best", flat=True)
    ) == ["T19", "T18"]
    assert (
        Author.objects.filter(Exists(Book.objects.filter(author=OuterRef("pk"), price__gt=4.6)))
        .get()
        .name
        == "Ann"
    )
    assert (
        Book.objects.annotate(u=Upper(Concat("title", Value("-"), "author__name")))
        .filter(u="T1-ANN")
        .count()
        == 1
    )
    r = (
        Book.objects.annotate(c=Case(When(price__gt=3, then=Value("dear")), default=Value("cheap")))
        .values("c")
        .annotate(n=Count("id"))
        .order_by("c")
    )
    assert [(x["c"], x["n"]) for x in r] == [("cheap", 13), ("dear", 7)], list(r)
    r = Book.objects.annotate(
        r=Window(RowNumber(), partition_by="author", order_by=F("price").desc())
    ).filter(r=1)
    assert r.count() == 2
    assert len(list(r)) == 2
    r = Book.objects.annotate(
        l=Length("title"),
        e=ExtractYear("at"),
        z=Coalesce("number", 0),
        cast=Cast("number", CharField()),
    ).first()
    assert r.l == 2
    assert Book.objects.filter(number=1).update(price=F("price") * 2 + 1) == 1
    assert Book.objects.get(number=1).price == Decimal("1.5")
    assert Book.objects.values("title").union(Author.objects.values("name")).count() == 22
    assert Book.objects.dates("at", "month").count() == 1
    assert len(Book.objects.datetimes("at", "hour")) >= 1


def bulk():
    Author.objects.bulk_create([Author(name=f"b{i}") for i in range(300)])
    Author.objects.bulk_create([Author(name=f"b{i}") for i in range(5)], ignore_conflicts=True)
    Author.objects.bulk_create(
        [Author(name=f"b{i}", born=dt.date(2000, 1, 1)) for i in range(5)],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["born"],
    )
    assert Author.objects.filter(born=dt.date(2000, 1, 1)).count() == 5
    found = list(Author.objects.filter(name__startswith="b"))
    assert len(found) == 300
    for a in found[:50]:
        a.born = dt.date(2001, 1, 1)
    Author.objects.bulk_update(found[:50], ["born"])
    assert Author.objects.filter(born__year=2001).count() == 50
    assert len(list(Author.objects.iterator(chunk_size=50))) == 302
    n, _ = Author.objects.filter(name__regex="^b[0-9]").delete()
    assert n == 300
    o, c = Author.objects.get_or_create(name="Ann")
    assert not c
    o, c = Author.objects.update_or_create(name="New", defaults={"born": None})
    assert c
    o.delete()


def transactions():
    try:
        with transaction.atomic():
            Author.objects.create(name="Ann")
    except IntegrityError:
        pass
    else:
        raise AssertionError
    with transaction.atomic():
        Author.objects.create(name="in")
        try:
            with transaction.atomic():
                Author.objects.create(name="Ann")
        except IntegrityError:
            pass
        b = Book.objects.select_for_update().get(number=2)
        b.price = 7
        b.save()
        transaction.set_rollback(False)
    assert Author.objects.filter(name="in").delete()[0] == 1
    try:
        Book.objects.create(author=Author.objects.first(), title="neg", price=-1)
    except IntegrityError:
        pass
    else:
        raise AssertionError
    try:
        with transaction.atomic():
            Book.objects.create(author_id=99999, title="fk", price=1)
    except IntegrityError:
        pass
    else:
        raise AssertionError


def select_for_update_join():
    with transaction.atomic():
        list(Book.objects.select_related("author").select_for_update(of=("self",)).filter(number=2))


def cascade():
    a = Author.objects.create(name="gone")
    b = Book.objects.create(author=a, title="g", price=1)
    b.tags.add(Tag.objects.first())
    assert a.delete()[1] == {"shop.Book_tags": 1, "shop.Book": 1, "shop.Author": 1}


def auth():
    u = User.objects.create_superuser("root", "r@x.ch", "pw")
    g = Group.objects.create(name="g")
    g.permissions.set(Permission.objects.all()[:5])
    u.groups.add(g)
    assert u.has_perm("shop.add_book")
    v = User.objects.create_user("joe", password="x")
    v.groups.add(g)
    assert len(v.get_all_permissions()) == 5


def admin_login():
    assert CLIENT.get("/admin/").status_code == 302
    r = CLIENT.post("/admin/login/?next=/admin/", {"username": "root", "password": "pw"})
    assert r.status_code == 302, r.content[:500]
    assert b"Books" in CLIENT.get("/admin/").content


def admin_pages():
    year = timezone.localdate().year
    for url in (
        "shop/book/",
        "shop/book/?q=T1",
        "shop/book/?o=-3.2",
        "shop/book/?tags__id__exact=1",
        "shop/book/?author__id__exact=1",
        "shop/author/",
        "auth/user/",
        "auth/group/",
        "auth/user/1/change/",
        "shop/book/add/",
        f"shop/book/?at__year={year}",
    ):
        assert CLIENT.get(f"/admin/{url}").status_code == 200, url


def admin_edit():
    a = Author.objects.get(name="Ann").pk
    r = CLIENT.post(
        "/admin/shop/book/add/",
        {
            "author": a,
            "title": "web",
            "number": 3,
            "price": "2.50",
            "data": '{"k": 1}',
            "tags": [1, 2],
        },
    )
    assert r.status_code == 302, r.content[-3000:]
    b = Book.objects.get(title="web")
    assert b.tags.count() == 2
    r = CLIENT.post(
        f"/admin/shop/book/{b.pk}/change/",
        {"author": a, "title": "web2", "number": 3, "price": "3.50", "data": "{}"},
    )
    assert r.status_code == 302
    assert CLIENT.get(f"/admin/shop/book/{b.pk}/history/").status_code == 200
    assert b"web2" in CLIENT.get(f"/admin/shop/book/{b.pk}/delete/").content
    r = CLIENT.post(f"/admin/shop/book/{b.pk}/delete/", {"post": "yes"})
    assert r.status_code == 302
    assert not Book.objects.filter(pk=b.pk).exists()
    ids = list(Book.objects.values_list("pk", flat=True)[:2])
    r = CLIENT.post(
        "/admin/shop/book/", {"action": "delete_selected", "_selected_action": ids, "post": "yes"}
    )
    assert r.status_code == 302
    assert Book.objects.count() == 18
    r = CLIENT.post("/admin/shop/author/add/", {"name": "Ann"})
    assert b"already exists" in r.content


def sessions():
    s = CLIENT.session
    s["k"] = [1, 2]
    s.save()
    assert Client is not None
    assert CLIENT.session["k"] == [1, 2]
    call_command("clearsessions")


def inspect():
    out = StringIO()
    call_command("inspectdb", stdout=out)
    t = out.getvalue()
    for part in ("class ShopBook(", "unique_together = (('author', 'title'),", "JSONField"):
        assert part in t, t[-1500:]


def fixtures():
    out = StringIO()
    call_command("dumpdata", "shop", stdout=out)
    Path("fixture.json").write_text(out.getvalue())
    call_command("loaddata", "fixture.json", verbosity=0)
    Author.objects.create(name="after load")


def sequence_reset():
    out = StringIO()
    call_command("sqlsequencereset", "shop", stdout=out, no_color=True)
    with connection.cursor() as c:
        for s in out.getvalue().split(";"):
            if s.strip():
                c.execute(s)


def editor():
    with connection.schema_editor() as e:
        f = models.CharField(max_length=9, default="q")
        f.set_attributes_from_name("extra")
        e.add_field(Author, f)
    with connection.schema_editor() as e:
        g = models.CharField(max_length=20, null=True, db_index=True)
        g.set_attributes_from_name("extra")
        e.alter_field(Author, f, g)
    with connection.schema_editor() as e:
        h = models.CharField(max_length=20, null=True, db_index=True)
        h.set_attributes_from_name("other")
        e.alter_field(Author, g, h)
    with connection.schema_editor() as e:
        e.remove_field(Author, h)


def int_to_big():
    with connection.schema_editor() as e:
        f = Book._meta.get_field("number")
        g = models.BigIntegerField(default=1)
        g.set_attributes_from_name("number")
        g.model = Book
        e.alter_field(Book, f, g)


def constraints():
    c = models.UniqueConstraint(fields=["title", "number"], name="u_tn")
    with connection.schema_editor() as e:
        e.add_constraint(Book, c)
    with connection.schema_editor() as e:
        e.remove_constraint(Book, c)
    i = models.Index(fields=["price"], name="i_p")
    with connection.schema_editor() as e:
        e.add_index(Book, i)
    with connection.schema_editor() as e:
        e.remove_index(Book, i)
    p = models.UniqueConstraint(
        fields=["title"], condition=models.Q(number__gt=5, price__isnull=False), name="u_part"
    )
    q = models.Index(fields=["price"], condition=models.Q(title__in=["a", "b"]), name="i_part")
    with connection.schema_editor() as e:
        e.add_constraint(Book, p)
    with connection.schema_editor() as e:
        e.add_index(Book, q)
    r = connection.introspection.get_constraints(connection.cursor(), "shop_book")
    assert r["u_part"]["unique"]
    assert r["i_part"]["columns"] == ["price"]
    with connection.schema_editor() as e:
        e.remove_constraint(Book, p)
    with connection.schema_editor() as e:
        e.remove_index(Book, q)
    with connection.schema_editor() as e:
        e.alter_unique_together(
            Book, [("author", "title")], [("author", "title"), ("title", "price")]
        )
    r = connection.introspection.get_constraints(connection.cursor(), "shop_book")
    assert any(v["unique"] and v["columns"] == ["title", "price"] for v in r.values())


def flush_all():
    call_command("flush", interactive=False, verbosity=0)
    assert Book.objects.count() == 0


def unmigrate():
    call_command("migrate", "shop", "zero", verbosity=0)


CHECKS = (
    check_no_changes,
    permissions,
    create,
    lookups,
    json_lookups,
    aggregates,
    expressions,
    bulk,
    transactions,
    select_for_update_join,
    cascade,
    auth,
    admin_login,
    admin_pages,
    admin_edit,
    sessions,
    inspect,
    fixtures,
    sequence_reset,
    editor,
    int_to_big,
    constraints,
    flush_all,
    unmigrate,
)
