//! Models that sleep and wake.

use super::*;

/// A server on which some checks fail.
fn sleeper(sleep: &str, wake: &str) -> SwapModel {
    let mut model = server();
    model.sleep_path = Some(sleep.into());
    model.wake_path = Some(wake.into());
    model
}

#[tokio::test]
async fn a_model_without_both_calls_does_not_sleep() {
    let mut model = server();
    model.sleep_path = Some("/fail/0".into());
    let instance = started(model).await;
    assert!(instance.sleep().is_none());
}

#[tokio::test]
async fn a_model_that_wakes_is_waited_for() {
    let instance = started(sleeper("/fail/1000000", "/fail/3")).await;
    let sleep = instance.sleep().expect("it can sleep");
    soon(sleep).await.unwrap();
    assert_eq!(get(&*instance, "/health").await.0, 503);
    let before = asks(&*instance).await;
    soon(instance.wake(LoadProgress::default())).await.unwrap();
    assert_eq!(asks(&*instance).await, before + 4);
}

#[tokio::test]
async fn a_call_that_fails_is_an_error() {
    let instance = started(sleeper("/no", "/neither")).await;
    let error = soon(instance.sleep().unwrap()).await.unwrap_err();
    assert_eq!(error, "its call `/no` failed: the answer is 404 Not Found");
    let error = soon(instance.wake(LoadProgress::default()))
        .await
        .unwrap_err();
    let reason = "its call `/neither` failed: the answer is 404 Not Found";
    assert_eq!(error.reason, reason);
}
