"""A template filter for times."""

from datetime import UTC, datetime

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.filter
def moment(at: datetime | None) -> SafeString:
    """Show a time in UTC. The script local_time.js then shows it in the time zone of the browser, and UTC on hover. For
    None, the result is ""."""
    if at is None:
        return SafeString("")
    utc = at.astimezone(UTC).replace(microsecond=0)
    return format_html('<time datetime="{}">{} UTC</time>', utc.isoformat(), f"{utc:%Y-%m-%d %H:%M:%S}")
