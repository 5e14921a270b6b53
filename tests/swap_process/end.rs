//! How a process that was ready ends, or is taken for ended.

use futures_util::FutureExt;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::*;

/// A server that is asked for its health often.
fn watched() -> SwapModel {
    let mut model = server();
    model.health_interval = Some(Duration::from_millis(50));
    model
}

#[tokio::test]
async fn a_crash_ends_its_children_too() {
    let mut model = server();
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    let ended = instance.ended();
    get(&*instance, "/child").await;
    mark.until_count(2).await;
    crash(&*instance).await;
    assert_eq!(soon(ended).await, "its process ended with exit status: 7");
    mark.until_count(0).await;
    assert_eq!(
        soon(instance.ended()).await,
        "its process ended with exit status: 7"
    );
}

/// Makes the server exit.
async fn crash(instance: &dyn ModelServer) {
    use tokio::io::AsyncWriteExt;
    let port = instance.url().port_u16().unwrap();
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    let request = b"GET /exit HTTP/1.1\r\n\r\n";
    stream.unwrap().write_all(request).await.unwrap();
}

#[tokio::test]
async fn three_failed_checks_in_a_row_end_it() {
    let mut model = watched();
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    get(&*instance, "/fail/1000000").await;
    let reason = soon(instance.ended()).await;
    let expected = "it failed its health checks: the answer is 503 Service Unavailable";
    assert_eq!(reason, expected);
    mark.until_count(0).await;
    soon(instance.kill()).await;
    assert_eq!(soon(instance.ended()).await, expected);
}

#[tokio::test]
async fn two_failed_checks_are_forgiven() {
    let instance = started(watched()).await;
    for _ in 0..3 {
        let before = asks(&*instance).await;
        get(&*instance, "/fail/2").await;
        while asks(&*instance).await < before + 5 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(instance.ended().now_or_never(), None);
}

#[tokio::test]
async fn checks_without_an_answer_end_it_unless_it_is_busy() {
    let mut model = watched();
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    let before = asks(&*instance).await;
    get(&*instance, "/hang").await;
    while asks(&*instance).await < before + 5 {
        instance.on_activity(1);
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(instance.ended().now_or_never(), None);
    let reason = soon(instance.ended()).await;
    let expected = "it failed its health checks: no whole answer within 1 s";
    assert_eq!(reason, expected);
    mark.until_count(0).await;
}

#[tokio::test]
async fn clients_that_come_and_give_up_do_not_hide_that_its_checks_fail() {
    let mut model = watched();
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    get(&*instance, "/hang").await;
    let clients = async {
        for busy in [1, 0].into_iter().cycle() {
            instance.on_activity(busy);
            sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        reason = soon(instance.ended()) => assert!(reason.contains("health checks"), "{reason}"),
        () = clients => unreachable!("they come for ever"),
    }
    mark.until_count(0).await;
}

#[tokio::test]
async fn requests_without_a_byte_end_it() {
    let mut model = script("sleep 3600");
    model.hang_timeout = Some(Duration::from_millis(50));
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    instance.on_activity(1);
    let reason = soon(instance.ended()).await;
    assert_eq!(reason, "it had requests, and sent nothing for 0.05 s");
    mark.until_count(0).await;
}

#[tokio::test]
async fn dropping_it_kills_all_of_it() {
    let mut model = script("trap : TERM; sleep 3600 & sleep 3600");
    let mark = Mark::on(&mut model);
    let instance = started(model).await;
    mark.until_count(3).await;
    drop(instance);
    mark.until_count(0).await;
}

#[test]
fn the_end_of_its_runtime_is_its_end() {
    let runtime = Runtime::new().unwrap();
    let mut model = script("sleep 3600 & wait");
    let mark = Mark::on(&mut model);
    let instance = runtime.block_on(started(model));
    runtime.block_on(mark.until_count(2));
    drop(runtime);
    let runtime = Runtime::new().unwrap();
    runtime.block_on(async {
        let reason = soon(instance.ended()).await;
        assert_eq!(reason, "its runtime was shut down");
        mark.until_count(0).await;
        soon(instance.stop()).await;
        soon(instance.kill()).await;
    });
}
