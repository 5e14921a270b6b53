//! Tests of the discipline `fair` by tokens: those of the prompt, and twice those of the answer.
//!
//! The backend takes its time for tokens, because time with a slot is charged beyond what the tokens explain.

use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::Response;
use tokio::time::{Instant, sleep};

use crate::backend::{Backend, BackendRequest};
use crate::client::PendingResponse;
use crate::fair_slots::{Served, assert_paid, set_time};
use crate::process::{Gateway, Setup};

/// How many tokens the prompt of a test has, about: a message of 40 characters.
const PROMPT: u64 = 10;
/// How many tokens the answers of tenant `a` have, and those of `b`.
const OUTPUT: [u64; 2] = [400, 40];

/// A gateway with the discipline `fair`, one backend for model `m`, and its only slot taken.
struct FairGateway {
    gateway: Gateway,
    backend: Backend,
    first: PendingResponse,
    running: BackendRequest,
    waiting: Vec<PendingResponse>,
}

impl FairGateway {
    async fn start(queue: &str, routing: &str) -> Self {
        Self::with_model(queue, routing, "").await
    }

    /// Starts it with more keys of the model.
    async fn with_model(queue: &str, routing: &str, keys: &str) -> Self {
        let backend = Backend::start().await;
        let queue =
            format!("max_size = 200\ndiscipline = \"fair\"\nmax_wait_seconds = 600\n{queue}");
        let model = format!("max_concurrent = 1\nmodels = [{{ name = \"m\"{keys} }}]");
        let setup = Setup::new().queue(&queue).routing(routing).backend_with(
            "gpu-1",
            &backend.url(),
            &model,
        );
        let gateway = setup.start().await;
        let first = gateway.ask("m").tenant("first").send();
        let running = backend.next().await;
        Self {
            gateway,
            backend,
            first,
            running,
            waiting: Vec::new(),
        }
    }

    /// Sends requests that wait, by the value of this header.
    async fn queue(&mut self, header: &'static str, value: &str, count: usize) {
        self.queue_with(PROMPT, header, value, count).await;
    }

    /// Sends requests that wait, with prompts of about so many tokens.
    async fn queue_with(&mut self, prompt: u64, header: &'static str, value: &str, count: usize) {
        let text = "x".repeat(4 * prompt as usize);
        let body = format!(
            r#"{{"model":"m","max_tokens":400,"messages":[{{"role":"user","content":"{text}"}}]}}"#
        );
        for _ in 0..count {
            let mut ask = self.gateway.ask("m").label(value).header(header, value);
            if value == "a" {
                ask = ask.header("accept-encoding", "gzip, deflate");
            }
            self.waiting.push(ask.body(body.clone()).send());
        }
        self.gateway.depth(self.waiting.len() as u64).await;
    }

    /// Frees the slot and serves all waiters, each in the time that `hold` says. Returns them in the order of service.
    async fn serve(
        self,
        hold: impl Fn(&str) -> Duration,
        answer: impl Fn(BackendRequest),
    ) -> Vec<Served> {
        self.running.answer("");
        let mut order = Vec::new();
        let mut arrived = Instant::now();
        for _ in &self.waiting {
            let next = self.backend.next().await;
            set_time(&mut order, &mut arrived);
            order.push((next.label().to_owned(), Duration::ZERO));
            sleep(hold(next.label())).await;
            answer(next);
        }
        set_time(&mut order, &mut arrived);
        self.first.answer().await.assert_ok("");
        for waiter in self.waiting {
            waiter.answer().await;
        }
        order
    }
}

fn output_of(label: &str) -> u64 {
    OUTPUT[usize::from(label == "b")]
}

/// A millisecond for each token of the answer.
fn by_tokens(label: &str) -> Duration {
    Duration::from_millis(output_of(label))
}

/// An answer time that is equal for all tenants.
fn equal(_: &str) -> Duration {
    Duration::from_millis(60)
}

/// Asserts that while both tenants had waiters, the services that they got were never farther apart than `most` of the largest:
/// by the cost of their requests, or by the time of their slots, which counts where a busy machine makes it longer than the
/// cost explains.
fn assert_fair(order: &[Served], cost: impl Fn(&str) -> u64, most: u32) {
    let last = |tenant| order.iter().rposition(|(label, _)| label == tenant);
    let both = last("a").min(last("b")).expect("both were served");
    let costs = [cost("a"), cost("b")];
    let longest = order.iter().map(|(_, time)| *time).max().unwrap();
    let (mut service, mut times) = ([0; 2], [Duration::ZERO; 2]);
    for (label, time) in &order[..both] {
        let tenant = usize::from(label == "b");
        service[tenant] += costs[tenant];
        times[tenant] += *time;
        let is_fair_by_cost =
            service[0].abs_diff(service[1]) <= u64::from(most) * costs[0].max(costs[1]);
        let is_fair_by_time = times[0].abs_diff(times[1]) <= most * longest;
        assert!(is_fair_by_cost || is_fair_by_time, "{order:?}");
    }
}

/// Asserts that of requests of equal cost, those of both tenants took turns.
fn assert_turns(order: &[Served]) {
    assert_fair(order, |_| 1, 3);
}

/// An answer with `usage`, and with a text that says nothing of its length.
fn with_usage(arrived: BackendRequest) {
    let usage = format!(
        r#"{{"prompt_tokens":{PROMPT},"completion_tokens":{}}}"#,
        output_of(arrived.label())
    );
    let body = format!(r#"{{"choices":[{{"message":{{"content":"fine"}}}}],"usage":{usage}}}"#);
    let response = Response::builder().header("content-type", "application/json");
    arrived.respond(response.body(body).unwrap());
}

/// A stream without `usage`.
fn with_pieces(arrived: BackendRequest) {
    let pieces = output_of(arrived.label());
    let stream = arrived.stream();
    for _ in 0..pieces {
        stream.send("data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n");
    }
    stream.end();
}

/// An answer with `usage`, compressed for a client that can read it.
fn compressed(arrived: BackendRequest) {
    let reads_gzip = arrived.header("accept-encoding");
    if !reads_gzip.is_some_and(|it| it.contains("gzip")) {
        return with_usage(arrived);
    }
    let usage = format!(r#"{{"completion_tokens":{}}}"#, output_of(arrived.label()));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    let text = "word ".repeat(100);
    write!(gzip, r#"{{"choices":["{text}"],"usage":{usage}}}"#).unwrap();
    let response = Response::builder()
        .header("content-type", "application/json")
        .header("content-encoding", "gzip");
    arrived.respond(response.body(gzip.finish().unwrap()).unwrap());
}

async fn assert_as_many_tokens(answer: impl Fn(BackendRequest)) {
    let mut fair = FairGateway::start("", "").await;
    fair.queue("x-tenant-id", "a", 6).await;
    fair.queue("x-tenant-id", "b", 80).await;
    let order = fair.serve(by_tokens, answer).await;
    // Twice what is in flight by VTC's bound, which is one answer with one slot.
    assert_fair(&order, |label| PROMPT + 2 * output_of(label), 3);
}

#[tokio::test]
async fn tenants_get_as_many_tokens_whatever_the_length_of_their_answers() {
    assert_as_many_tokens(with_usage).await;
}

#[tokio::test]
async fn streams_without_usage_are_counted_by_their_pieces() {
    assert_as_many_tokens(with_pieces).await;
}

#[tokio::test]
async fn compressed_answers_cost_their_tokens() {
    assert_as_many_tokens(compressed).await;
}

/// Both tenants get the same answers; `usage` lies to `a` about their length.
#[tokio::test]
async fn answers_with_a_false_usage_cost_what_they_could() {
    for usage in [
        "0",
        "1e300",
        "18446744073709551615",
        "9999999999999999999999",
    ] {
        let mut fair = FairGateway::start("", "").await;
        fair.queue("x-tenant-id", "a", 10).await;
        fair.queue("x-tenant-id", "b", 10).await;
        let order = fair
            .serve(equal, |arrived| {
                let tokens = if arrived.label() == "a" { usage } else { "40" };
                let text = "word".repeat(40);
                let body = format!(
                    r#"{{"choices":[{{"text":"{text}"}}],"usage":{{"completion_tokens":{tokens}}}}}"#
                );
                let response = Response::builder().header("content-type", "application/json");
                arrived.respond(response.body(body).unwrap());
            })
            .await;
        assert_fair(&order, |_| 1, 6);
    }
}

#[tokio::test]
async fn a_replaced_prompt_costs_what_its_tokens_are_above_the_clients_own() {
    let long = "x".repeat(4 * 200);
    let keys =
        format!(", set_params = {{ messages = [{{ role = \"user\", content = \"{long}\" }}] }}");
    let mut fair = FairGateway::with_model("", "", &keys).await;
    fair.queue("x-tenant-id", "a", 10).await;
    fair.queue_with(200, "x-tenant-id", "b", 10).await;
    let order = fair
        .serve(equal, |arrived| {
            let usage = r#"{"usage":{"prompt_tokens":300,"completion_tokens":1}}"#;
            let response = Response::builder().header("content-type", "application/json");
            arrived.respond(response.body(usage).unwrap());
        })
        .await;
    assert_turns(&order);
}

#[tokio::test]
async fn audio_is_no_text_and_costs_no_tokens() {
    let mut fair = FairGateway::start("", "").await;
    fair.queue("x-tenant-id", "a", 10).await;
    fair.queue("x-tenant-id", "b", 10).await;
    let order = fair
        .serve(equal, |arrived| match arrived.label() {
            "a" => {
                let response = Response::builder().header("content-type", "audio/mpeg");
                arrived.respond(response.body(Bytes::from(vec![0; 1 << 20])).unwrap());
            }
            _ => {
                let response = Response::builder().header("content-type", "application/json");
                arrived.respond(response.body("{}").unwrap());
            }
        })
        .await;
    assert_turns(&order);
}

#[tokio::test]
async fn by_requests_tenants_take_turns() {
    let mut fair = FairGateway::start("", "fair_by = \"requests\"").await;
    fair.queue("x-tenant-id", "a", 10).await;
    fair.queue("x-tenant-id", "b", 10).await;
    let order = fair.serve(equal, with_usage).await;
    assert_turns(&order);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_charged_for_what_there_was() {
    let mut fair = FairGateway::start("", "max_retries = 0").await;
    let by_cost = |label: &str| Duration::from_millis(if label == "a" { 2_000 } else { 100 });
    fair.queue("x-tenant-id", "a", 2).await;
    fair.queue("x-tenant-id", "b", 20).await;
    let order = fair
        .serve(by_cost, |arrived| match arrived.label() {
            "a" => {
                let stream = arrived.stream();
                (0..100).for_each(|_| stream.send("data: x\n\n"));
                stream.abort();
            }
            _ => arrived.answer(""),
        })
        .await;
    assert_paid(&order, "a");
}

#[tokio::test]
async fn sessions_take_turns_where_they_are_the_tenants() {
    let mut fair = FairGateway::start("tenant_header = \"x-session-id\"", "").await;
    fair.queue("x-session-id", "a", 10).await;
    fair.queue("x-session-id", "b", 10).await;
    let order = fair.serve(equal, |arrived| arrived.answer("")).await;
    assert_turns(&order);
}
