//! Where `RouteLayer` sends a request, and what it adds to request and response.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tower::{Layer, ServiceExt, service_fn};
use tower_triage::endpoints::{
    Candidates, Choice, Decision, ModelRoom, Registry, RouteError, Strategy, Via,
};
use tower_triage::queue::QueueTime;
use tower_triage::route::{RouteBody, RoutingConfig, StrategyChoice};
use tower_triage::{Discipline, QueueConfig, RejectReason, RouteLayer};

use super::support::{TestRouter, code, endpoint, header, settle, status};

#[tokio::test(start_paused = true)]
async fn inner_service_and_caller_get_the_decision() {
    let routing = RoutingConfig::default().alias("gpt-4", "llama");
    let mut router = TestRouter::new([endpoint("gpu", 1, &["llama"])], routing);
    let answer = router.ask("gpt-4");
    let call = router.call().await;
    let Decision {
        model, asked, via, ..
    } = &call.decision;
    assert_eq!((&**model, &**asked, *via), ("llama", "gpt-4", Via::Alias));
    assert_eq!(call.decision.strategy, "smart");
    assert_eq!(call.decision.score, Some(99));
    assert_eq!(call.body, r#"{"model":"llama"}"#);
    call.ok();

    let answer = answer.await.unwrap();
    assert_eq!(header(&answer, "x-triage-endpoint"), "gpu");
    assert_eq!(header(&answer, "x-triage-model"), "llama");
    let decision = answer.extensions().get::<Decision>().unwrap();
    assert_eq!(decision.endpoint.name(), "gpu");
}

#[tokio::test(start_paused = true)]
async fn the_caller_gets_the_reason_of_a_rejection() {
    let router = TestRouter::new([endpoint("gpu", 1, &["llama"])], RoutingConfig::default());
    let answer = router.ask("gpt-5").await.unwrap();
    let reason = answer.extensions().get::<RejectReason<RouteError>>();
    let Some(RejectReason::Unservable(RouteError::ModelNotFound { model, .. })) = reason else {
        panic!("{reason:?}");
    };
    assert_eq!(&**model, "gpt-5");
}

#[tokio::test(start_paused = true)]
async fn the_model_header_is_ours_for_any_name() {
    let mut router = TestRouter::new(
        [endpoint("gpu", 1, &["qwen-千问"])],
        RoutingConfig::default(),
    );
    let asked = router.ask("qwen-千问");
    let mut answer = status(200);
    answer
        .headers_mut()
        .insert("x-triage-model", "another".parse().unwrap());
    router.call().await.answer(answer);
    let answer = asked.await.unwrap();
    assert_eq!(answer.headers()["x-triage-model"], "qwen-千问".as_bytes());
}

#[tokio::test(start_paused = true)]
async fn content_length_follows_the_replaced_model_name() {
    let routing = RoutingConfig::default().alias("a", "a-longer-name");
    let mut router = TestRouter::new([endpoint("gpu", 1, &["a-longer-name"])], routing);
    let body = r#"{"model":"a"}"#;
    let request = Request::post("/")
        .header("content-length", body.len())
        .body(Full::from(body))
        .unwrap();
    router.send(request);
    let call = router.call().await;
    assert_eq!(call.body, r#"{"model":"a-longer-name"}"#);
    assert_eq!(call.headers["content-length"], call.body.len().to_string());
}

#[tokio::test]
async fn response_headers_can_be_turned_off() {
    let registry = Registry::new(vec![endpoint("gpu", 1, &["m"])]).unwrap();
    for (tells_endpoint, tells_model) in [(true, false), (false, true)] {
        let router = RouteLayer::builder(registry.clone())
            .endpoint_header(tells_endpoint)
            .model_header(tells_model);
        let inner = service_fn(async |_: Request<RouteBody<Full<Bytes>>>| {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("ok")))
        });
        let route = router.build().layer(inner);
        let request = Request::new(Full::from(r#"{"model":"m"}"#));
        let answer = route.oneshot(request).await.unwrap();
        let has = |name| answer.headers().contains_key(name);
        assert_eq!(has("x-triage-endpoint"), tells_endpoint);
        assert_eq!(has("x-triage-model"), tells_model);
    }
}

#[tokio::test(start_paused = true)]
async fn an_encoded_body_is_refused() {
    let router = TestRouter::new([endpoint("gpu", 1, &["m"])], RoutingConfig::default());
    for (encoding, refused) in [("gzip", true), ("identity", false), (" ", false)] {
        let request = Request::post("/")
            .header("content-encoding", encoding)
            .body(Full::from(r#"{"model":"unknown"}"#))
            .unwrap();
        let answer = router.send(request).await.unwrap();
        assert_eq!(answer.status() == 415, refused, "{encoding}");
        let grpc = Request::post("/")
            .header("content-encoding", encoding)
            .header("content-type", "application/grpc")
            .body(Full::from(r#"{"model":"unknown"}"#));
        let answer = router.send(grpc.unwrap()).await.unwrap();
        let unimplemented = answer
            .headers()
            .get("grpc-status")
            .is_some_and(|status| status == "12");
        assert_eq!(unimplemented, refused, "{encoding}");
    }
}

#[derive(Debug)]
struct Last;

impl Strategy for Last {
    fn name(&self) -> &'static str {
        "last"
    }

    fn choose<'a>(&self, candidates: &Candidates<'a>) -> Option<Choice<'a>> {
        candidates
            .free()
            .last()
            .map(|last| Choice::new(last).score(7))
    }
}

#[tokio::test(start_paused = true)]
async fn a_custom_strategy_chooses() {
    let own = StrategyChoice::Custom(std::sync::Arc::new(Last));
    let endpoints = ["a", "b", "c"].map(|name| endpoint(name, 1, &["m"]));
    let mut router = TestRouter::new(endpoints, RoutingConfig::default().strategy(own));
    let _waiting = router.ask("m");
    let call = router.call().await;
    assert_eq!(call.endpoint(), "c");
    assert_eq!(
        (call.decision.strategy, call.decision.score),
        ("last", Some(7))
    );
}

#[tokio::test(start_paused = true)]
async fn latency_is_measured_from_real_traffic() {
    use std::time::Duration;
    let mut router = TestRouter::new([endpoint("gpu", 1, &["m"])], RoutingConfig::default());
    let answer = router.ask("m");
    let call = router.call().await;
    tokio::time::advance(Duration::from_millis(250)).await;
    call.ok();
    let answer = answer.await.unwrap();
    tokio::time::advance(Duration::from_millis(500)).await;
    answer.into_body().collect().await.unwrap();
    let gpu = router.endpoint("gpu");
    assert_eq!(gpu.first_byte_latency(), Duration::from_millis(250));
    assert_eq!(gpu.total_latency(), Duration::from_millis(750));

    // A failure is fast, and says nothing of how fast it is.
    let answer = router.ask("m");
    router.call().await.answer(status(500));
    answer.await.unwrap();
    assert_eq!(gpu.first_byte_latency(), Duration::from_millis(250));
}

#[tokio::test(start_paused = true)]
async fn a_model_has_its_own_partition() {
    let routing = RoutingConfig::default().room("m", ModelRoom::default().max_size(1));
    let endpoints = [endpoint("a", 1, &["m"]), endpoint("b", 1, &["n"])];
    let mut router =
        TestRouter::with_queue(endpoints, routing, QueueConfig::default().max_size(10));
    router.ask("m");
    let _at_a = router.call().await;
    router.ask("n");
    let _at_b = router.call().await;
    let first = router.ask("m");
    settle().await;
    let second = router.ask("m").await.unwrap();
    assert_eq!(code(second).await, "queue_full");
    let others: Vec<_> = (0..5).map(|_| router.ask("n")).collect();
    settle().await;
    assert_eq!(router.handle.status().depth, 6);
    assert!(!first.is_finished() && others.iter().all(|other| !other.is_finished()));
}

#[tokio::test(start_paused = true)]
async fn the_discipline_of_a_model_changes_while_requests_wait() {
    let room = |discipline| {
        let room = ModelRoom::default().max_size(50).discipline(discipline);
        RoutingConfig::default().room("m", room)
    };
    let mut router = TestRouter::new([endpoint("gpu", 1, &["m"])], room(Discipline::Fifo));
    router.ask("m");
    let mut running = router.call().await;
    for tenant in ["a", "a", "a", "b"] {
        let request = Request::post("/")
            .header("x-tenant-id", tenant)
            .body(Full::from(format!(r#"{{"model":"m","user":"{tenant}"}}"#)))
            .unwrap();
        router.send(request);
        settle().await;
    }
    let registry = (*router.handle.registry()).clone();
    router
        .handle
        .replace(registry, room(Discipline::Fair))
        .unwrap();
    assert_eq!(router.handle.status().depth, 4);
    let mut order = String::new();
    for _ in 0..4 {
        running.answer(Response::new("ok".into()));
        running = router.call().await;
        let body: serde_json::Value = serde_json::from_str(&running.body).unwrap();
        order += body["user"].as_str().unwrap();
    }
    assert_eq!(order, "abaa");
}

#[test]
fn a_cancelled_token_closes_the_room_inside_cancel() {
    let token = tokio_util::sync::CancellationToken::new();
    let registry = Registry::new(vec![endpoint("gpu", 1, &["m"])]).unwrap();
    let layer = RouteLayer::builder(registry)
        .build()
        .shutdown(token.clone());
    let service = layer.layer(service_fn(|_: Request<RouteBody<Full<Bytes>>>| async {
        Ok::<_, Infallible>(status(200))
    }));
    let ask = || {
        let request = Request::new(Full::from(r#"{"model":"m"}"#));
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        runtime
            .block_on(service.clone().oneshot(request))
            .unwrap()
            .status()
    };
    assert_eq!(ask(), 200);
    token.cancel();
    assert!(layer.handle().status().closed);
    assert_eq!(ask(), 503);

    let registry = Registry::new(vec![endpoint("gpu", 1, &["m"])]).unwrap();
    let late = RouteLayer::builder(registry).build().shutdown(token);
    assert!(late.handle().status().closed);
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_sees_how_long_its_request_waited() {
    let registry = Registry::new(vec![endpoint("gpu", 1, &["m"])]).unwrap();
    let layer = RouteLayer::builder(registry).queue_time_extension().build();
    let service = layer.layer(service_fn(
        |request: Request<RouteBody<Full<Bytes>>>| async move {
            let QueueTime(waited) = request.extensions().get().expect("a wait");
            let waited = waited.as_millis().to_string();
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(waited)))
        },
    ));
    let requests = [(); 2].map(|()| {
        let request = Request::new(Full::<Bytes>::from(r#"{"model":"m"}"#));
        tokio::spawn(service.clone().oneshot(request))
    });
    for (request, waited) in requests.into_iter().zip(["0", "1000"]) {
        let body = request.await.unwrap().unwrap().into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), waited);
    }
}
