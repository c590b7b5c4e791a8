# mypy: ignore-errors
"""What the admin shows of the app."""

from django.contrib import admin

from shop.models import Author, Book, Tag

admin.site.register(Author)
admin.site.register(Tag)


@admin.register(Book)
class BookAdmin(admin.ModelAdmin):
    list_display = ("title", "author", "price")
    list_filter = ("author", "tags")
    search_fields = ("title", "author__name")
    date_hierarchy = "at"
