"""URLs of agents, refinement sessions and `gc` under /api/v1/."""

from django.urls import path

from refinement.api import agent, keys, runs, sessions, tenant

urlpatterns = [
    path("agent", agent.OwnAgent.as_view()),
    path("agent/keys", keys.Keys.as_view()),
    path("context", agent.Context.as_view()),
    path("runs", runs.Runs.as_view()),
    path("gc-reports", runs.Reports.as_view()),
    path("gc-reports/<int:number>", runs.OneReport.as_view()),
    path("refinement-sessions", sessions.Sessions.as_view()),
    path("refinement-sessions/<int:number>", sessions.OneSession.as_view()),
    path("refinement-sessions/<int:number>/briefing", sessions.Briefing.as_view()),
    path("refinement-sessions/<int:number>/tools/<slug:tool>", sessions.Call.as_view()),
    path("refinement-sessions/<int:number>/abort", sessions.Abort.as_view()),
    path("agents", tenant.Agents.as_view()),
    path("agents/<str:slug>", tenant.OneAgent.as_view()),
    path("agents/<str:slug>/keys", tenant.AgentKeys.as_view()),
    path("agents/<str:slug>/keys/suspend", tenant.SuspendKeys.as_view()),
    path("agents/<str:slug>/keys/<slug:prefix>", tenant.OneAgentKey.as_view()),
]
