//! Requests that meet the end of a process.

use http::StatusCode;
use tower_triage::swap::ModelState;

use super::engines::{ask, layer};
use super::system::halt;
use super::*;

/// Waits until all threads of a process have ended, and with them its connections. Nothing else runs meanwhile.
fn until_ended(pid: u32) {
    let has_ended = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        threads.count() == 1 && stat.contains(") Z ")
    };
    while !has_ended() {
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn a_request_that_an_ended_process_refused_goes_to_a_new_one() {
    for keeps_connections in [false, true] {
        let mut model = server();
        if keeps_connections {
            model.env.insert("SERVE_KEEPS".into(), "1".into());
        }
        let mark = Mark::on(&mut model);
        let (service, handle) = layer(model);
        assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
        for round in 0..25 {
            until(|| handle.models()[0].state == ModelState::Loaded).await;
            let pid = mark.until_count(1).await[0];
            kill(pid);
            until_ended(pid);
            // The driver knows nothing of it yet.
            let (status, body) = ask(&service, "/asks").await;
            assert_eq!(status, StatusCode::OK, "round {round}: {body}");
        }
        soon(handle.shutdown()).await;
    }
}

#[tokio::test]
async fn a_request_that_a_dying_process_did_not_read_goes_to_a_new_one() {
    for keeps_connections in [false, true] {
        let mut model = server();
        if keeps_connections {
            model.env.insert("SERVE_KEEPS".into(), "1".into());
        }
        let mark = Mark::on(&mut model);
        let (service, handle) = layer(model);
        assert_eq!(ask(&service, "/asks").await.0, StatusCode::OK);
        for round in 0..25 {
            until(|| handle.models()[0].state == ModelState::Loaded).await;
            // Its program runs no more, though the system has yet to close its connections. A thread that waits in a read
            // when it is killed may still take what comes, so all have to be halted first.
            let pid = mark.until_count(1).await[0];
            halt(pid).await;
            kill(pid);
            let (status, body) = ask(&service, "/asks").await;
            assert_eq!(status, StatusCode::OK, "round {round}: {body}");
        }
        soon(handle.shutdown()).await;
    }
}

#[tokio::test]
async fn a_process_that_lives_and_refuses_connections_has_not_crashed() {
    let mut model = server();
    model.health_path = None;
    let (service, handle) = layer(model);
    let listens = async { while ask(&service, "/asks").await.0 != StatusCode::OK {} };
    soon(listens).await;
    assert_eq!(ask(&service, "/deaf").await.0, StatusCode::OK);
    let mut refused = 0;
    while refused < 3 {
        let (status, body) = ask(&service, "/asks").await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
        // One that comes before the listener is closed is reset.
        let code = ["upstream_failed", "upstream_unreachable"].map(|code| body.contains(code));
        assert_ne!(code, [false; 2], "{body}");
        refused += u32::from(code[1]);
    }
    assert_eq!(handle.models()[0].state, ModelState::Loaded);
    soon(handle.shutdown()).await;
}
