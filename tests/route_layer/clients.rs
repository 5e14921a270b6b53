//! Tickets and models from extensions that a layer in front has verified.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::json;
use tower_triage::endpoints::Registry;
use tower_triage::route::{RouteLayerBuilder, RoutingConfig};
use tower_triage::{Priority, QueueConfig, RouteLayer};

use super::support::{TestRouter, endpoint};

/// The client that a layer in front has verified.
#[derive(Clone)]
struct Claims {
    team: &'static str,
    max_level: &'static str,
    models: &'static [&'static str],
}

fn builder(models: &[&str]) -> RouteLayerBuilder {
    let registry = Registry::new(vec![endpoint("a", 1, models)]).unwrap();
    RouteLayer::builder(registry)
}

fn request(model: &str, claims: Claims) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::from(json!({ "model": model }).to_string()));
    request
        .headers_mut()
        .insert("x-priority", "high".parse().unwrap());
    request
        .headers_mut()
        .insert("x-tenant-id", "forged".parse().unwrap());
    request.extensions_mut().insert(claims);
    request
}

#[tokio::test(start_paused = true)]
async fn a_closure_takes_tenant_and_priority_from_an_extension() {
    let claims = |team, max_level| Claims {
        team,
        max_level,
        models: &[],
    };
    let router = builder(&["m"])
        .queue(QueueConfig::default().max_size_per_tenant(1))
        .classify(|request, context| {
            let claims = request.extensions().get::<Claims>().unwrap();
            let mut ticket = context.ticket_from_headers(request.headers());
            assert_eq!(ticket.priority, Priority::HIGHEST);
            ticket.tenant = claims.team.into();
            ticket.priority = ticket.priority.min(context.priority(claims.max_level));
            ticket
        });
    let mut router = TestRouter::of(router);
    let running = router.send(request("m", claims("a", "high")));
    let first = router.call().await;
    let normal = router.send(request("m", claims("a", "normal")));
    assert!(router.settled().await.is_none());
    let urgent = router.send(request("m", claims("b", "high")));
    assert!(router.settled().await.is_none());
    // The room counts the waiters of each tenant, so the names come from the extension.
    let refused = router.send(request("m", claims("a", "normal"))).await;
    assert_eq!(refused.unwrap().status(), 429);

    first.ok();
    running.await.unwrap();
    router.call().await.ok();
    urgent.await.unwrap();
    assert!(!normal.is_finished());
    router.call().await.ok();
    normal.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_not_allowed_looks_unknown() {
    let aliases = RoutingConfig::default()
        .alias("x", "one")
        .alias("y", "two")
        .alias("z", "two");
    let router = builder(&["one", "two"])
        .routing(aliases)
        .allow_models(|request, model| {
            let claims = request.extensions().get::<Claims>();
            claims.is_some_and(|claims| claims.models.contains(&model))
        });
    let mut router = TestRouter::of(router);
    let claims = Claims {
        team: "a",
        max_level: "high",
        models: &["one", "y"],
    };
    for allowed in ["one", "x", "y"] {
        let sent = router.send(request(allowed, claims.clone()));
        router.call().await.ok();
        assert_eq!(sent.await.unwrap().status(), 200, "{allowed}");
    }
    for hidden in ["two", "z", "none"] {
        let response = router.send(request(hidden, claims.clone())).await.unwrap();
        assert_eq!(response.status(), 404, "{hidden}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let error: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(error["error"]["code"], "model_not_found");
        let message = format!("Model '{hidden}' not found");
        assert_eq!(error["error"]["message"], *message);
    }
}
