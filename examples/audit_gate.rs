use std::time::{Duration, Instant};
use tower_triage::gate::DetachedPermit;
use tower_triage::{Gate, Permits, Priority, QueueConfig, Rejected, RoomConfig, Ticket};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut room = RoomConfig::default();
    room.chairs = 2;
    room.max_wait = Some(Duration::from_millis(500));
    let gate = Gate::new(Permits::new(1), room);
    let t = |id| Ticket::new(Priority::HIGHEST, Instant::now()).id(id);
    let name = gate.acquire(t(7), ()).await?.detach();
    println!("{name} {:?}", gate.detached());
    let text = name.to_string();
    let g = gate.clone();
    let a = tokio::spawn(async move { g.acquire(t(8), ()).await.map(|p| p.request()) });
    let g = gate.clone();
    let b = tokio::spawn(async move { g.acquire(t(9), ()).await.map(|p| p.request()) });
    tokio::time::sleep(Duration::from_millis(20)).await;
    gate.reconfigure(QueueConfig::new(1).max_size(1).room()?);
    println!("b {:?}", b.await?);
    let name: DetachedPermit = text.parse()?;
    assert!(gate.release(&name));
    assert!(!gate.release(&name));
    println!("a {:?}", a.await?);
    println!(
        "limit {:?} {:?}",
        gate.status(),
        "x-y".parse::<DetachedPermit>()
    );
    gate.set_limit(0);
    gate.close();
    gate.closed().await;
    match gate.acquire(t(1), ()).await {
        Err(Rejected::ShuttingDown) => println!("closed"),
        other => println!("{other:?}"),
    }
    Ok(())
}
