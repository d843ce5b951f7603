-- Permissions of the role `palimpsest`, which the web processes and the workers use. The role owns no table, so it cannot
-- switch off a trigger. Run this file as the owner of the tables (or a superuser) after every migrate, for new tables.
BEGIN;

REVOKE ALL ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO palimpsest;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO palimpsest;

-- No row can be deleted. In the trail, the role can only add rows and empty fields (the triggers allow only redactions).
REVOKE UPDATE, DELETE ON audit_auditentry, audit_change FROM palimpsest;
GRANT UPDATE (sealed) ON audit_auditentry TO palimpsest;
GRANT UPDATE (before, after) ON audit_change TO palimpsest;
REVOKE DELETE ON memory_memory, memory_agent, memory_tenant FROM palimpsest;

-- Only migrations change these tables.
REVOKE INSERT, UPDATE, DELETE ON django_migrations, django_content_type, auth_permission FROM palimpsest;

-- No temporary tables either: the service needs none.
DO $$ BEGIN EXECUTE format('REVOKE TEMPORARY ON DATABASE %I FROM PUBLIC', current_database()); END $$;

COMMIT;
