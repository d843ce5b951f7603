"""Django's formats for values. All times in the admin have the same format."""

DATETIME_FORMAT = "Y-m-d H:i:s T"  # T is the zone: "UTC"
