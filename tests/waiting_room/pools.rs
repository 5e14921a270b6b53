//! A capacity for tests: pools with slots, and lanes that some of the pools serve.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tower_triage::admit::{Capacity, LeaseError, Partition, PoolId, PoolSet, SlotUsage};

#[derive(Debug, Clone)]
pub(crate) struct TestPool {
    pub(crate) slots: usize,
    pub(crate) taken: usize,
}

/// The pools that serve a lane. Without any, its demands are unservable.
pub(crate) type Serves = Vec<usize>;

/// The pool with the most free slots; of equals, the first.
pub(crate) fn choose(pools: &[TestPool], serves: &Serves) -> Option<usize> {
    let free = |pool: usize| pools[pool].slots.saturating_sub(pools[pool].taken);
    let candidates = serves.iter().copied().filter(|&pool| free(pool) > 0);
    candidates.max_by_key(|&pool| (free(pool), std::cmp::Reverse(pool)))
}

#[derive(Debug)]
pub(crate) struct TestPools {
    pools: Mutex<Vec<TestPool>>,
    lanes: Mutex<Vec<(Arc<usize>, Serves)>>,
    partitions: Mutex<Vec<Partition>>,
    asked: AtomicUsize,
    leased: AtomicUsize,
    /// All slots are busy from this many calls of `try_lease` on.
    most_asked: AtomicUsize,
    /// A pool that gets one more slot after the next `Busy`.
    late: Mutex<Option<usize>>,
}

/// A leased slot: the index of its pool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestSlot(pub(crate) usize);

impl TestPools {
    pub(crate) fn new(slots: &[usize], lanes: &[Serves]) -> Self {
        let pools = slots.iter().map(|&slots| TestPool { slots, taken: 0 });
        let partitions = vec![Partition::default(); lanes.len()];
        let lanes = lanes.iter().cloned().enumerate();
        Self {
            pools: Mutex::new(pools.collect()),
            lanes: Mutex::new(lanes.map(|(i, serves)| (Arc::new(i), serves)).collect()),
            partitions: Mutex::new(partitions),
            asked: AtomicUsize::new(0),
            most_asked: AtomicUsize::new(usize::MAX),
            leased: AtomicUsize::new(0),
            late: Mutex::new(None),
        }
    }

    pub(crate) fn set_slots(&self, pool: usize, slots: usize) {
        self.pools.lock().unwrap()[pool].slots = slots;
    }

    pub(crate) fn set_serves(&self, lane: usize, serves: Serves) {
        self.lanes.lock().unwrap()[lane].1 = serves;
    }

    pub(crate) fn set_partition(&self, lane: usize, partition: Partition) {
        self.partitions.lock().unwrap()[lane] = partition;
    }

    pub(crate) fn taken(&self) -> Vec<usize> {
        self.pools.lock().unwrap().iter().map(|w| w.taken).collect()
    }

    /// Whether a slot is free that serves this lane.
    pub(crate) fn fits(&self, lane: usize) -> bool {
        let serves = self.lanes.lock().unwrap()[lane].1.clone();
        choose(&self.pools.lock().unwrap(), &serves).is_some()
    }

    /// How many lanes the room has open: each holds a clone of the `Arc`.
    pub(crate) fn open_lanes(&self) -> usize {
        let lanes = self.lanes.lock().unwrap();
        lanes.iter().filter(|l| Arc::strong_count(&l.0) > 1).count()
    }

    /// Adds a slot to the pool just after the next `Busy`.
    pub(crate) fn late_slot(&self, pool: usize) {
        *self.late.lock().unwrap() = Some(pool);
    }

    /// Makes all slots busy from this many calls of `try_lease` on, so that a test of an endless loop ends.
    pub(crate) fn stop_after(&self, asked: usize) {
        self.most_asked.store(asked, SeqCst);
    }

    /// How often `try_lease` was called since the last call of this.
    pub(crate) fn asked(&self) -> usize {
        self.asked.swap(0, SeqCst)
    }
}

impl Capacity for TestPools {
    type Demand = usize;
    type Lease = TestSlot;
    type Lane = Arc<usize>;
    type Unservable = &'static str;

    fn try_lease(&self, &lane: &usize) -> Result<TestSlot, LeaseError<&'static str>> {
        if self.asked.fetch_add(1, SeqCst) >= self.most_asked.load(SeqCst) {
            return Err(LeaseError::Busy);
        }
        let serves = self.lanes.lock().unwrap()[lane].1.clone();
        if serves.is_empty() {
            return Err(LeaseError::Unservable("no pool"));
        }
        let mut pools = self.pools.lock().unwrap();
        let Some(pool) = choose(&pools, &serves) else {
            if let Some(late) = self.late.lock().unwrap().take() {
                pools[late].slots += 1;
            }
            return Err(LeaseError::Busy);
        };
        pools[pool].taken += 1;
        self.leased.fetch_add(1, SeqCst);
        Ok(TestSlot(pool))
    }

    fn release(&self, TestSlot(pool): TestSlot) -> PoolId {
        self.pools.lock().unwrap()[pool].taken -= 1;
        PoolId(pool as u32)
    }

    fn pool(&self, &TestSlot(pool): &TestSlot) -> PoolId {
        PoolId(pool as u32)
    }

    fn lane(&self, &lane: &usize) -> Arc<usize> {
        Arc::clone(&self.lanes.lock().unwrap()[lane].0)
    }

    fn pools(&self, lane: &Arc<usize>) -> PoolSet {
        let lanes = self.lanes.lock().unwrap();
        lanes[**lane].1.iter().map(|&w| PoolId(w as u32)).collect()
    }

    fn partition(&self, lane: &Arc<usize>) -> Partition {
        self.partitions.lock().unwrap()[**lane]
    }

    /// Those with slots.
    fn all_pools(&self) -> Option<PoolSet> {
        let pools = self.pools.lock().unwrap();
        let pools = (0..).zip(pools.iter());
        let with_slots = pools.filter(|(_, pool)| pool.slots > 0);
        Some(with_slots.map(|(nth, _)| PoolId(nth)).collect())
    }

    fn usage(&self) -> SlotUsage {
        let pools = self.pools.lock().unwrap();
        SlotUsage {
            slots: pools.iter().map(|pool| pool.slots).sum(),
            in_use: pools.iter().map(|pool| pool.taken).sum(),
        }
    }
    fn leased(&self) -> u64 {
        self.leased.load(SeqCst) as u64
    }
}

/// A capacity for random runs.
pub(crate) trait TestCapacity:
    Capacity<Demand = usize, Lease = TestSlot, Unservable = &'static str>
    + From<TestPools>
    + AsRef<TestPools>
{
}

impl TestCapacity for TestPools {}
impl TestCapacity for InLanes {}

impl AsRef<TestPools> for TestPools {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// [`TestPools`] whose partitions all have a bound, so that a room always has lanes.
#[derive(Debug)]
pub(crate) struct InLanes(TestPools);

impl From<TestPools> for InLanes {
    fn from(pools: TestPools) -> Self {
        Self(pools)
    }
}

impl AsRef<TestPools> for InLanes {
    fn as_ref(&self) -> &TestPools {
        &self.0
    }
}

impl Capacity for InLanes {
    type Demand = usize;
    type Lease = TestSlot;
    type Lane = Arc<usize>;
    type Unservable = &'static str;

    fn try_lease(&self, demand: &usize) -> Result<TestSlot, LeaseError<&'static str>> {
        self.0.try_lease(demand)
    }

    fn release(&self, lease: TestSlot) -> PoolId {
        self.0.release(lease)
    }

    fn pool(&self, lease: &TestSlot) -> PoolId {
        self.0.pool(lease)
    }

    fn lane(&self, demand: &usize) -> Arc<usize> {
        self.0.lane(demand)
    }

    fn pools(&self, lane: &Arc<usize>) -> PoolSet {
        self.0.pools(lane)
    }

    fn partition(&self, lane: &Arc<usize>) -> Partition {
        let mut partition = self.0.partition(lane);
        partition.max_size.get_or_insert(usize::MAX);
        partition
    }

    fn all_pools(&self) -> Option<PoolSet> {
        self.0.all_pools()
    }

    fn usage(&self) -> SlotUsage {
        self.0.usage()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }
}
