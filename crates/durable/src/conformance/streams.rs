//! Responses in pieces.

use std::sync::Arc;

use crate::{Chunk, StoreConfig};
use bytes::Bytes;

use super::*;

fn piece(number: u64) -> Chunk {
    Chunk {
        number,
        data: Bytes::from(format!("piece {number}")),
    }
}

/// Pieces are read as they come.
pub async fn pieces_are_read_as_they_come<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    for number in 1..=3 {
        store
            .append(&fetched.lease, piece(number).data)
            .await
            .unwrap();
        let read = store.chunks(id, number - 1).await.unwrap().unwrap();
        assert_eq!(read.chunks, [piece(number)]);
        assert!(!read.is_end && !read.has_gap);
    }
    let read = store.chunks(id, 1).await.unwrap().unwrap();
    assert_eq!(read.chunks, [piece(2), piece(3)]);
    let end = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.chunks(id, 3).await })
    };
    tokio::task::yield_now().await;
    assert!(finish(&*store, fetched.clone(), ok("all")).await);
    let read = end.await.unwrap().unwrap().unwrap();
    assert!(read.is_end && read.chunks.is_empty());
    // It has no effect any more.
    store.append(&fetched.lease, piece(4).data).await.unwrap();
    let read = store.chunks(id, 3).await.unwrap().unwrap();
    assert!(read.chunks.is_empty());
}

/// Pieces are read after the end.
pub async fn pieces_are_read_after_the_end<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    for number in 1..=5 {
        store
            .append(&fetched.lease, piece(number).data)
            .await
            .unwrap();
    }
    assert!(finish(&*store, fetched, ok("all")).await);
    let mut after = 0;
    let mut pieces = Vec::new();
    loop {
        let read = store.chunks(id, after).await.unwrap().unwrap();
        pieces.extend(read.chunks);
        after = pieces.last().map_or(0, |piece: &Chunk| piece.number);
        if read.is_end {
            break;
        }
    }
    assert_eq!(pieces, [1, 2, 3, 4, 5].map(piece));
    let none = enqueue(&*store, request()).await.id;
    store.cancel(none).await.unwrap();
    let read = store.chunks(none, 0).await.unwrap().unwrap();
    assert!(read.is_end && read.chunks.is_empty());
}

/// No piece is missed by a racing reader.
pub async fn no_piece_is_missed_by_a_racing_reader<H: Harness>() {
    let harness = H::open(StoreConfig::default()).await;
    let store = harness.store();
    let id = enqueue(&*store, request()).await.id;
    let fetched = fetch_one(&*store).await;
    let reader = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut numbers = Vec::new();
            loop {
                let after = numbers.last().copied().unwrap_or(0);
                let read = store.chunks(id, after).await.unwrap().unwrap();
                numbers.extend(read.chunks.iter().map(|chunk| chunk.number));
                if read.is_end {
                    return numbers;
                }
            }
        })
    };
    for number in 1..=40 {
        store
            .append(&fetched.lease, piece(number).data)
            .await
            .unwrap();
        if number % 3 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert!(finish(&*store, fetched, ok("all")).await);
    assert_eq!(reader.await.unwrap(), (1..=40).collect::<Vec<u64>>());
}
