"""An owner with a token, what it remembers, and what was done."""

import hashlib

from django.db import models


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Owner(models.Model):
    token = models.CharField(max_length=64, unique=True)  # hashed

    is_authenticated = True

    class Meta:
        app_label = "bare"


class Note(models.Model):
    owner = models.ForeignKey(Owner, models.CASCADE)
    kind = models.CharField(max_length=8, default="core")
    tags = models.JSONField(default=list)
    origin = models.DateTimeField(auto_now_add=True)
    created_at = models.DateTimeField(auto_now_add=True)
    content = models.TextField()

    class Meta:
        app_label = "bare"


class Entry(models.Model):
    owner = models.ForeignKey(Owner, models.CASCADE)
    at = models.DateTimeField(auto_now_add=True)
    operation = models.CharField(max_length=20)
    note = models.BigIntegerField()

    class Meta:
        app_label = "bare"
