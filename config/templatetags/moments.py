"""A template filter for times. A page contains UTC. The script config/static/palimpsest/local_time.js changes it to the
reader's own time zone."""

from datetime import UTC, datetime

from django.template import Library
from django.utils.dateformat import format as format_date
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = Library()


@register.filter
def moment(time: datetime | None, layout: str = "Y-m-d H:i") -> SafeString | str:
    """The time as a `<time>` element with its text in UTC, or "" if there is no time.

    `layout` is a format of Django's filter `date`. If it has seconds, the local time has seconds too. If it has no
    hours, only a date.
    """
    if time is None:
        return ""
    utc = time.astimezone(UTC)
    text, title = (format_date(utc, each) for each in (layout, "Y-m-d H:i:s"))
    element = '<time datetime="{}" title="{} UTC">{}</time>'
    return format_html(element, utc.isoformat(timespec="seconds"), title, f"{text} UTC" if "H" in layout else text)
