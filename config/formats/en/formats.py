"""How Django writes what it shows: a time in one way, wherever one stands in the admin."""

DATETIME_FORMAT = "Y-m-d H:i:s T"  # T is the zone: "UTC"
