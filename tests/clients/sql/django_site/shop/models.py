# mypy: ignore-errors
"""Authors, books, tags: a unique text, a foreign key, many to many, JSON, an index, a check."""

import django
from django.db import models

_CHECK = "condition" if django.VERSION >= (5, 1) else "check"


class Author(models.Model):
    name = models.CharField(max_length=50, unique=True)
    born = models.DateField(null=True, blank=True)

    def __str__(self):
        return self.name


class Tag(models.Model):
    slug = models.SlugField(unique=True)

    def __str__(self):
        return self.slug


class Book(models.Model):
    author = models.ForeignKey(Author, on_delete=models.CASCADE, related_name="books")
    tags = models.ManyToManyField(Tag, blank=True)
    title = models.CharField(max_length=100)
    number = models.PositiveSmallIntegerField(default=1)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    data = models.JSONField(default=dict, blank=True)
    at = models.DateTimeField(auto_now_add=True)
    length = models.DurationField(null=True, blank=True)
    key = models.UUIDField(null=True, blank=True)

    class Meta:
        unique_together = (("author", "title"),)
        indexes = (models.Index(fields=["title", "-at"], name="book_title_at"),)
        constraints = (
            models.CheckConstraint(**{_CHECK: models.Q(price__gte=0)}, name="price_positive"),
        )

    def __str__(self):
        return self.title
