"""Django with its own PostgreSQL backend: migrations, ORM, the admin's pages, transactions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sql.conftest import Sql

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

_SETTINGS = """
SECRET_KEY = "only a test"
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes",
    "django.contrib.sessions", "django.contrib.messages", "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
STATIC_URL = "/static/"
DATABASES = {"default": {
    "ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": %(port)d,
    "USER": "kvorum", "NAME": %(name)r,
}}
"""
_URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""
_MODELS = """
from django.db import models

class Author(models.Model):
    name = models.CharField(max_length=50, unique=True)
    born = models.DateField(null=True, blank=True)

class Book(models.Model):
    title = models.CharField(max_length=80, db_index=True)
    author = models.ForeignKey(Author, models.CASCADE, related_name="books")
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)
    about = models.JSONField(default=dict)
    made = models.DateTimeField(auto_now_add=True)
"""
_ADMIN = """
from django.contrib import admin
from shop.models import Author, Book
admin.site.register(Author)
admin.site.register(Book, list_display=["title", "author", "price"], search_fields=["title"])
"""
_USE = """
import django
django.setup()
from decimal import Decimal
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models import Count, F, Sum
from django.test import Client
from shop.models import Author, Book

one = Author.objects.create(name="one")
Author.objects.bulk_create([Author(name=f"a{n}") for n in range(20)])
for n in range(5):
    Book.objects.create(title=f"b{n}", author=one, price=n, about={"n": n})
assert Book.objects.filter(author__name="one").count() == 5
assert Book.objects.get(title="b3").about == {"n": 3}
Book.objects.filter(title="b3").update(price=F("price") + Decimal("1.50"))
assert Book.objects.aggregate(s=Sum("price"))["s"] == Decimal("11.50")
assert Author.objects.annotate(n=Count("books")).get(name="one").n == 5
assert [b.title for b in Book.objects.order_by("-price")[:2]] == ["b3", "b4"]
try:
    with transaction.atomic():
        Author.objects.create(name="rolled back")
        with transaction.atomic():
            Author.objects.create(name="one")
except IntegrityError:
    pass
assert not Author.objects.filter(name="rolled back").exists()
assert Author.objects.get_or_create(name="one") == (one, False)
User.objects.create_superuser("root", "r@example.com", "secret")
web = Client()
assert web.login(username="root", password="secret")
for page in ("", "shop/author/", "shop/book/", "shop/book/?q=b3", "shop/book/add/",
             f"shop/author/{one.pk}/change/", "auth/user/"):
    answer = web.get("/admin/" + page)
    assert answer.status_code == 200, (page, answer.status_code)
told = web.post("/admin/shop/author/add/", {"name": "from the admin", "born": "2001-02-03"})
assert told.status_code == 302, told.content[:2000]
assert Author.objects.get(name="from the admin").born.year == 2001
one.delete()
assert Book.objects.count() == 0
print("all well")
"""


# Migrations pass as far as contrib.auth's bulk inserts. Each ALTER TABLE waits for all proxies, so
# that the whole takes a quarter of an hour: it is not run in vain.
@pytest.mark.xfail(reason="unnest of several arrays in FROM is not there yet", run=False)
@pytest.mark.timeout(1_800)
def test_django(sql: Sql, tmp_path: Path) -> None:
    """makemigrations, migrate, the ORM with joins and aggregates, atomic blocks, admin pages."""
    (tmp_path / "conf.py").write_text(_SETTINGS % {"port": sql.port, "name": sql.database})
    (tmp_path / "urls.py").write_text(_URLS)
    app = tmp_path / "shop"
    app.mkdir()
    (app / "__init__.py").write_text("")
    (app / "models.py").write_text(_MODELS)
    (app / "admin.py").write_text(_ADMIN)
    (tmp_path / "use.py").write_text(_USE)
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "conf", "PYTHONPATH": str(tmp_path)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True,
            timeout=1_500, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    run("-m", "django", "makemigrations", "shop")
    run("-m", "django", "migrate")
    assert "[ ]" not in run("-m", "django", "showmigrations")
    assert run("use.py") == "all well\n"
