"""URLs for load balancers and Prometheus."""

from django.urls import path

from refinement.monitoring import health, metrics

urlpatterns = [path("healthz", health.alive), path("readyz", health.ready), path("metrics", metrics.metrics)]
