from refinement.admin import sessions as sessions
