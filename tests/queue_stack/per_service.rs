//! A queue for each service that a layer makes.

use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test(start_paused = true)]
async fn each_service_has_a_limit_that_its_clones_share() {
    let inner = TestService::new();
    let queue = layer(QueueConfig::shed(1)).per_service();
    let services = [
        queue.layer(inner.clone()),
        queue.clone().layer(inner.clone()),
    ];
    for service in &services {
        let running = send(service, normal("running")).await;
        let refused = send(service, normal("refused")).await;
        assert_eq!(
            refused.await.unwrap(),
            Err(QueueError::Rejected(RejectReason::Shed))
        );
        assert_eq!(service.handle().status().running, 1);
        assert!(!running.is_finished());
    }
    assert_eq!(inner.peak(), 2);
    let [one, other] = services.map(|service| service.handle());
    one.reconfigure(QueueConfig::shed(5)).unwrap();
    assert_eq!((one.status().limit, other.status().limit), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn a_token_closes_the_queues_of_all_services() {
    let token = CancellationToken::new();
    let layer = layer(QueueConfig::new(1)).shutdown(token.clone());
    let handle = layer.handle();
    let queue = layer.per_service();
    let before = [(); 2].map(|()| queue.layer(TestService::new()).handle());
    handle.close(); // the layer's own queue, which no service has
    assert!(before.iter().all(|handle| !handle.status().closed));
    token.cancel();
    let after = queue.layer(TestService::new()).handle();
    assert!(
        before
            .iter()
            .chain([&after])
            .all(|handle| handle.status().closed)
    );
}
