//! Three demo backends on loopback.

use tokio::net::TcpListener;
use tower_triage::endpoints::{Endpoint, HealthCheck, Model};
use tower_triage::route::RoutingConfig;

use crate::model_server::ModelServer;

struct DemoBackend {
    name: &'static str,
    slots: u32,
    models: &'static [&'static str],
}

const BACKENDS: [DemoBackend; 3] = [
    DemoBackend {
        name: "demo-1",
        slots: 2,
        models: &["llama3:8b", "llama3:70b"],
    },
    DemoBackend {
        name: "demo-2",
        slots: 2,
        models: &["llama3:8b"],
    },
    DemoBackend {
        name: "demo-3",
        slots: 2,
        models: &["mistral:7b"],
    },
];

/// Starts the demo backends and returns their endpoints.
pub(crate) async fn start() -> std::io::Result<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    for DemoBackend {
        name,
        slots,
        models,
    } in BACKENDS
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?)
            .parse()
            .map_err(std::io::Error::other)?;
        let server = ModelServer::new(models.iter().copied(), slots).router();
        tokio::spawn(axum::serve(listener, server).into_future());
        let endpoint = Endpoint::new(name, url)
            .max_concurrent(slots)
            .health(HealthCheck::default());
        endpoints.push(models.iter().fold(endpoint, |endpoint, &model| {
            endpoint.model(Model::new(model))
        }));
    }
    Ok(endpoints)
}

/// An alias and a fallback chain for the demo backends.
pub(crate) fn routing() -> RoutingConfig {
    RoutingConfig::default()
        .alias("gpt-4", "llama3:70b")
        .fallbacks("llama3:405b", ["llama3:70b", "mistral:7b"])
}

/// Commands to try, printed at the start. They are for a POSIX shell with `curl`.
pub(crate) fn commands(gateway: std::net::SocketAddr) -> String {
    let url = format!("http://{gateway}/v1/chat/completions");
    let body = r#"{"model":"llama3:70b","messages":[{"role":"user","content":"Am I next?"}]}"#;
    let streamed = body.replacen('{', r#"{"stream":true,"#, 1);
    let asking = |model| body.replacen("llama3:70b", model, 1);
    let (aliased, fallen_back) = (asking("gpt-4"), asking("llama3:405b"));
    let curl = format!("curl -s {url}");
    format!(
        r#"
Three demo backends are running. Things to try in another terminal:

  # a whole response, and a streamed one
  {curl} -d '{body}'
  {curl} -N -d '{streamed}'

  # 20 requests at once, and a high-priority one that arrives last and overtakes them
  (seq 20 | xargs -P 20 -I@ {curl} -o /dev/null -w 'normal %{{http_code}} after %{{time_total}} s\n' -d '{body}' &
   sleep 0.3; {curl} -o /dev/null -w 'HIGH   %{{http_code}} after %{{time_total}} s\n' -H 'x-priority: high' -d '{body}'; wait)

  # an alias, and a model without a backend that has a fallback: see the header x-triage-model
  {curl} -o /dev/null -D - -d '{aliased}'
  {curl} -o /dev/null -D - -d '{fallen_back}'

  # state, metrics and models
  curl -s http://{gateway}/admin/state
  curl -s http://{gateway}/metrics
  curl -s http://{gateway}/v1/models

Ctrl-C shuts down: waiting requests are rejected at once, running requests finish.
"#
    )
}
