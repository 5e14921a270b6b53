//! Tests of `--watch`: the configuration file is read again when it changes.

use crate::backend::Backend;
use crate::process::{Gateway, Setup};

/// Replaces the file without a signal.
fn write(gateway: &Gateway, setup: &Setup) {
    std::fs::write(gateway.config_file(), setup.config()).unwrap();
}

#[tokio::test]
async fn changes_of_the_file_are_used_and_mistakes_change_nothing() {
    let backend = Backend::replying("served").await;
    let setup = |models: &[&str]| Setup::new().backend("gpu-1", &backend, 1, models);
    let gateway = setup(&["m"]).arguments(&["--watch"]).start().await;
    write(&gateway, &setup(&["m", "n"]));
    gateway.logs(&["INFO", "endpoints changed: gpu-1"]).await;
    gateway.ask("n").answer().await.assert_ok("served");

    write(&gateway, &setup(&["o"]).queue("sise = 1"));
    gateway
        .logs(&["ERROR", "unknown field `sise`", "nothing has changed"])
        .await;
    gateway.ask("n").answer().await.assert_ok("served");

    write(&gateway, &setup(&["o"]));
    gateway.logs_more_than("endpoints changed: gpu-1", 1).await;
    gateway.ask("o").answer().await.assert_ok("served");
    assert_eq!(gateway.logged("nothing has changed"), 1);
}

#[tokio::test]
async fn file_that_is_not_watched_changes_nothing_without_a_signal() {
    let backend = Backend::replying("served").await;
    let setup = |models: &[&str]| Setup::new().backend("gpu-1", &backend, 1, models);
    let watched = setup(&["m"]).arguments(&["--watch"]).start().await;
    let other = setup(&["m"]).start().await;
    for gateway in [&other, &watched] {
        write(gateway, &setup(&["n"]));
    }
    watched.logs(&["INFO", "endpoints changed: gpu-1"]).await;
    other
        .ask("n")
        .answer()
        .await
        .assert_error(404, "model_not_found");
}
