//! Tests of responses: each caller gets its own, or the batch's error.

use super::*;

#[tokio::test(start_paused = true)]
async fn each_caller_gets_its_own_response() {
    let engine = Engine::manual();
    let service = service(&engine, 2, millis(5));
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, job(number)).await);
    }
    let second = sent.split_off(2);
    engine.finish();
    for (number, sent) in (0..2).zip(sent) {
        assert_eq!(answer(sent).await, 2 * number);
    }
    engine.finish();
    for (number, sent) in (2..4).zip(second) {
        assert_eq!(answer(sent).await, 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_fails_only_its_own_requests() {
    let engine = Engine::manual();
    let service = service(&engine, 2, millis(5));
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(send(&service, job(number)).await);
    }
    let others = sent.split_off(2);
    engine.finish_with(|_| Err("out of memory"));
    engine.finish();
    let mut errors = Vec::new();
    for sent in sent {
        match sent.await.unwrap() {
            Err(BatchError::Inner(error)) => errors.push(error),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(*errors[0], "out of memory");
    assert!(Arc::ptr_eq(&errors[0], &errors[1]), "one error, shared");
    for (number, sent) in (2..4).zip(others) {
        assert_eq!(answer(sent).await, 2 * number);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_number_of_responses_fails_the_batch() {
    for count in [0, 1, 3] {
        let engine = Engine::manual();
        let service = service(&engine, 2, millis(5));
        let both = [send(&service, job(0)).await, send(&service, job(1)).await];
        engine.finish_with(|_| Ok(vec![7; count]));
        for sent in both {
            match sent.await.unwrap() {
                Err(BatchError::WrongCount { requests, answers }) => {
                    assert_eq!((requests, answers), (2, count));
                }
                other => panic!("{other:?}"),
            }
        }
        let next = [send(&service, job(2)).await, send(&service, job(3)).await];
        engine.finish();
        for (number, sent) in (2..4).zip(next) {
            assert_eq!(answer(sent).await, 2 * number);
        }
    }
}

fn halves() -> impl tower::Service<
    Vec<u32>,
    Response = Vec<Result<u32, &'static str>>,
    Error = String,
    Future: Send + 'static,
> + Send
+ 'static {
    service_fn(|batch: Vec<u32>| async move {
        match batch.iter().any(|&n| n > 100) {
            true => Err(format!("one of {} is out of range", batch.len())),
            false => Ok(batch.iter().map(|n| half(*n)).collect()),
        }
    })
}

fn half(n: u32) -> Result<u32, &'static str> {
    n.is_multiple_of(2).then_some(n / 2).ok_or("odd")
}

#[tokio::test(start_paused = true)]
async fn per_item_results_fail_one_request() {
    let service = BatchLayer::new(3, millis(5)).per_item().layer(halves());
    let sent = [2, 3, 4].map(|n| tokio::spawn(service.clone().oneshot(n)));
    let [two, three, four] = sent;
    assert_eq!(two.await.unwrap().unwrap(), 1);
    assert_eq!(four.await.unwrap().unwrap(), 2);
    let error = three.await.unwrap().unwrap_err();
    assert!(matches!(error, BatchError::Item("odd")), "{error:?}");
    assert_eq!(error.to_string(), "odd");
}

#[tokio::test(start_paused = true)]
async fn per_item_batches_can_fail_as_a_whole() {
    let service = BatchLayer::new(2, millis(5)).per_item().layer(halves());
    let sent = [2, 101].map(|n| tokio::spawn(service.clone().oneshot(n)));
    for sent in sent {
        let error = sent.await.unwrap().unwrap_err();
        assert!(matches!(error, BatchError::Inner(_)));
        assert_eq!(error.to_string(), "one of 2 is out of range");
    }
}

#[test]
fn an_error_has_its_cause_as_source() {
    use std::error::Error as _;
    use std::io;

    type Failed = BatchError<io::Error, io::Error>;
    let broken = || io::Error::other("broken");
    let kind = |error: &Failed| {
        let source = error.source()?.downcast_ref::<io::Error>();
        source.map(io::Error::kind)
    };
    let inner = Failed::Inner(Arc::new(broken()));
    assert_eq!(kind(&inner), Some(io::ErrorKind::Other));
    assert_eq!(kind(&Failed::Item(broken())), Some(io::ErrorKind::Other));
    let rejected = Failed::Rejected(RejectReason::Full);
    let why = rejected.source().and_then(|why| why.downcast_ref());
    assert_eq!(
        why,
        Some(&RejectReason::<tower_triage::batch::TooLarge>::Full)
    );
    assert!(Failed::Lost.source().is_none());
}
