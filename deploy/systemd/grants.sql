-- What the role of the web processes and the workers, `palimpsest`, may do. It owns no table, so that it can switch no
-- trigger off. Run by the role that owns them after every migrate, for there may be new tables.
BEGIN;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO palimpsest;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO palimpsest;

-- The trail grows, and loses what a redaction covers (the triggers say which); no memory is ever removed.
REVOKE UPDATE, DELETE ON audit_auditentry, audit_change FROM palimpsest;
GRANT UPDATE (sealed) ON audit_auditentry TO palimpsest;
GRANT UPDATE (before, after) ON audit_change TO palimpsest;
REVOKE DELETE ON memory_memory, memory_agent, memory_tenant FROM palimpsest;

-- Made by migrations alone.
REVOKE INSERT, UPDATE, DELETE ON django_migrations, django_content_type, auth_permission FROM palimpsest;

COMMIT;
