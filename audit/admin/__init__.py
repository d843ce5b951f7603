from audit.admin import entries as entries
