//! Tests of the operator's page in Chromium.

use serde_json::{Value, json};

use crate::backend::Backend;
use crate::chromium::Browser;
use crate::process::{Gateway, Setup};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// The text of the row of a table that begins with `key`.
fn row(table: &str, key: &str) -> String {
    format!(
        "[...document.querySelectorAll('#{table} tbody tr')].find((row) => row.dataset.key === {key:?})"
    )
}

async fn page(gateway: &Gateway) -> Browser {
    let mut browser = Browser::open(&format!("{}/admin/", gateway.admin_url())).await;
    browser
        .until("!!document.querySelector('#endpoints-t tbody tr')")
        .await;
    browser
}

/// A gateway with one slot and one place in the waiting room, both taken by `tenant`, and one more request refused.
async fn full(tenant: &str) -> (Gateway, impl Sized) {
    let (backend, other) = (Backend::start().await, Backend::start().await);
    let setup = Setup::new()
        .top(ADMIN)
        .queue("max_size = 1\ntarget_wait = \"none\"\nmax_wait_seconds = \"none\"")
        .backend("gpu-1", &backend, 1, &["m"])
        .backend("gpu-2", &other, 3, &["n"]);
    let gateway = setup.start().await;
    let running = gateway.ask("m").send();
    let arrived = backend.next().await;
    let waiting = gateway.ask("m").tenant(tenant).send();
    gateway.depth(1).await;
    let refused = gateway.ask("m").answer().await;
    refused.assert_error(503, "queue_full");
    (gateway, (backend, other, running, arrived, waiting))
}

#[tokio::test]
async fn page_shows_waiters_bars_and_refusals_and_a_click_drains() {
    let (gateway, _busy) = full("team-a").await;
    let mut browser = page(&gateway).await;
    let normal = row("levels-t", "normal");
    browser
        .until(&format!("{normal}.cells[1].innerText === '1'"))
        .await;
    let refused = browser.eval(&format!("{normal}.cells[6].innerText")).await;
    assert_eq!(refused, "queue_full 1");
    let code = row("codes-t", "queue_full");
    let meaning = browser.eval(&format!("{code}.innerText")).await;
    assert!(meaning.as_str().unwrap().contains("was full"), "{meaning}");
    let tenant = browser
        .eval(&format!(
            "{}.cells[1].innerText",
            row("tenants-t", "team-a")
        ))
        .await;
    assert_eq!(tenant, "1");
    let gpu = row("endpoints-t", "gpu-1");
    let bar = format!("{gpu}.querySelector('[role=meter]').getAttribute('aria-valuetext')");
    assert_eq!(browser.eval(&bar).await, "1 / 1");
    let notices = browser
        .eval("document.getElementById('notices').innerText")
        .await;
    let notices = notices.as_str().unwrap();
    assert!(
        notices.contains("The waiting room is full: 1 of 1."),
        "{notices}"
    );

    let drain = format!(
        "[...{gpu}.querySelectorAll('button')].find((it) => it.innerText === 'Drain').click()"
    );
    browser.eval(&drain).await;
    gateway
        .until("gpu-1 drains", |state| {
            state.0["endpoints"][0]["draining"] == true
        })
        .await;
    browser
        .until(&format!("{gpu}.innerText.includes('Undrain')"))
        .await;
    browser
        .until("document.getElementById('notices').innerText.includes('gpu-1 is draining')")
        .await;
    browser.assert_no_problems().await;
}

async fn pass_500_ms(browser: &mut Browser) {
    browser.eval("window.pressed = performance.now()").await;
    browser
        .until("performance.now() - window.pressed > 500")
        .await;
}

#[tokio::test]
async fn page_works_by_keyboard_and_keeps_the_focus_while_it_updates() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top(ADMIN)
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let mut browser = page(&gateway).await;
    let focused =
        "document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText";
    let mut order = Vec::new();
    for _ in 0..4 {
        browser.press("Tab").await;
        order.push(browser.eval(focused).await);
    }
    let expected = [
        "Skip to the content",
        "Reload the configuration",
        "Drain gpu-1",
        "Eject gpu-1",
    ];
    assert_eq!(order, expected);
    let outline = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(browser.eval(outline).await, "solid");

    browser.press("Enter").await;
    browser
        .until(&format!("({focused}).startsWith('Really eject gpu-1')"))
        .await;
    browser.press("Escape").await;
    assert_eq!(browser.eval(focused).await, "Eject gpu-1");
    let uptime = browser
        .eval("window.before = document.getElementById('uptime').innerText")
        .await;
    browser
        .until("document.getElementById('uptime').innerText !== window.before")
        .await;
    assert_eq!(browser.eval(focused).await, "Eject gpu-1", "{uptime}");
    browser
        .until("new Set(samples.map((sample) => sample.at)).size > 2")
        .await;
    let line = "document.querySelector('#sparks svg path:nth-child(2)').getAttribute('d')";
    let line = browser.eval(line).await;
    assert!(line.as_str().unwrap().contains('L'), "{line}");
    // The endpoint is the only one of its model, so it stays, and the page says why.
    let press = "document.activeElement.click()";
    // The second one is too early for an answer to the question.
    browser.eval(&format!("{press}, {press}")).await;
    pass_500_ms(&mut browser).await;
    let outcome = "document.getElementById('outcome').innerText";
    assert_eq!(browser.eval(outcome).await, "");
    // On a slow machine the question may be over before it is answered.
    while browser.eval(outcome).await == "" {
        browser.press("Enter").await;
        pass_500_ms(&mut browser).await;
    }
    let outcome = browser.eval(outcome).await.to_string();
    assert!(outcome.contains("has to stay in service"), "{outcome}");
    let roles = "['header', 'main', 'section[aria-labelledby]', '[role=status][aria-live=polite]', 'th[scope=col]', \
                 'th[scope=row]'].map((it) => document.querySelector(it) !== null)";
    assert_eq!(browser.eval(roles).await, json!(vec![true; 6]));
    let live = browser
        .eval("document.querySelectorAll('[aria-live]').length")
        .await;
    assert_eq!(live, 1);
}

#[tokio::test]
async fn page_shows_names_of_clients_as_text() {
    let name = "<img src=x onerror=alert(1)>";
    let (gateway, _busy) = full(name).await;
    let mut browser = page(&gateway).await;
    browser
        .until(&format!("{} !== undefined", row("tenants-t", name)))
        .await;
    let shown = browser
        .eval(&format!("{}.cells[0].innerText", row("tenants-t", name)))
        .await;
    assert_eq!(shown, name);
    assert_eq!(
        browser
            .eval("document.querySelectorAll('img').length")
            .await,
        0
    );
    browser.assert_no_problems().await;
}

#[tokio::test]
async fn page_asks_for_the_token_and_keeps_it_in_the_tab() {
    let backend = Backend::start().await;
    let setup = Setup::new()
        .top(&format!("{ADMIN}token = \"sesame\"\n"))
        .backend("gpu-1", &backend, 1, &["m"]);
    let gateway = setup.start().await;
    let mut browser = Browser::open(&format!("{}/admin/", gateway.admin_url())).await;
    let give = |token: &str| {
        format!(
            "document.getElementById('token').value = {token:?}; \
             document.querySelector('#token-form button').click()"
        )
    };
    browser
        .until("!document.getElementById('login').hidden")
        .await;
    assert_eq!(browser.eval("document.activeElement.id").await, "token");
    browser.eval(&give("wrong")).await;
    browser
        .until("document.getElementById('token-note').innerText.includes('is not the one')")
        .await;
    browser.eval(&give("sesame")).await;
    browser
        .until("!!document.querySelector('#endpoints-t tbody tr')")
        .await;
    assert_eq!(
        browser
            .eval("document.getElementById('login').hidden")
            .await,
        true
    );
    browser.eval("location.reload()").await;
    browser
        .until("!!document.querySelector('#endpoints-t tbody tr')")
        .await;
    let kept = browser
        .eval("[sessionStorage.getItem('token'), localStorage.length, document.cookie]")
        .await;
    assert_eq!(kept, json!(["sesame", 0, ""]));
}

#[tokio::test]
async fn ten_thousand_requests_do_not_freeze_the_page() {
    let backend = Backend::start().await;
    let gateway = Setup::new()
        .top(ADMIN)
        .backend("gpu-1", &backend, 1, &["m"])
        .start()
        .await;
    let mut browser = page(&gateway).await;
    // The gateway sends the oldest hundred alone; a page that is given a hundred new ones each second stays quick.
    let drawn = browser
        .eval(
            "(() => { const begin = performance.now(); \
               for (let round = 0; round < 10; round++) { \
                 const requests = {}; \
                 for (let n = 0; n < 100; n++) \
                   requests[`r${round * 50 + n}`] = { nth: n, age_ms: 1000 * n, phase: 'waiting', tries: 0 }; \
                 state = merge(state, { live: { count: 10000, requests: null } }); \
                 state = merge(state, { live: { requests } }); \
                 render(); } \
               return [document.querySelectorAll('#live-t tbody tr').length, \
                       document.getElementById('live-note').innerText, performance.now() - begin < 20000]; })()",
        )
        .await;
    let expected: Value = json!([100, "the oldest 100 of 10,000", true]);
    assert_eq!(drawn, expected);
}
