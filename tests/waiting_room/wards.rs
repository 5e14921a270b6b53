//! A capacity for tests: wards with beds, and lanes that some of the wards can treat.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tower_triage::admit::{Capacity, LeaseError, Partition, PoolId, PoolSet};

#[derive(Debug, Clone)]
pub(crate) struct Ward {
    pub(crate) beds: usize,
    pub(crate) taken: usize,
}

/// Which wards can treat a lane; none can ever treat one that names none.
pub(crate) type Treats = Vec<usize>;

/// The ward with the most free beds, the first of equals.
pub(crate) fn choose(wards: &[Ward], treats: &Treats) -> Option<usize> {
    let free = |ward: usize| wards[ward].beds.saturating_sub(wards[ward].taken);
    let candidates = treats.iter().copied().filter(|&ward| free(ward) > 0);
    candidates.max_by_key(|&ward| (free(ward), std::cmp::Reverse(ward)))
}

#[derive(Debug)]
pub(crate) struct Wards {
    wards: Mutex<Vec<Ward>>,
    lanes: Mutex<Vec<(Arc<usize>, Treats)>>,
    sections: Mutex<Vec<Partition>>,
    asked: AtomicUsize,
    leased: AtomicUsize,
    /// Says that all is busy once it was asked this often.
    most_asked: AtomicUsize,
    /// A ward that gets a bed as soon as somebody was told that it is busy.
    late: Mutex<Option<usize>>,
}

/// A bed in a ward.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bed(pub(crate) usize);

impl Wards {
    pub(crate) fn new(beds: &[usize], lanes: &[Treats]) -> Self {
        let wards = beds.iter().map(|&beds| Ward { beds, taken: 0 });
        let sections = vec![Partition::default(); lanes.len()];
        let lanes = lanes.iter().cloned().enumerate();
        Self {
            wards: Mutex::new(wards.collect()),
            lanes: Mutex::new(lanes.map(|(i, treats)| (Arc::new(i), treats)).collect()),
            sections: Mutex::new(sections),
            asked: AtomicUsize::new(0),
            most_asked: AtomicUsize::new(usize::MAX),
            leased: AtomicUsize::new(0),
            late: Mutex::new(None),
        }
    }

    pub(crate) fn set_beds(&self, ward: usize, beds: usize) {
        self.wards.lock().unwrap()[ward].beds = beds;
    }

    pub(crate) fn set_treats(&self, lane: usize, treats: Treats) {
        self.lanes.lock().unwrap()[lane].1 = treats;
    }

    pub(crate) fn set_section(&self, lane: usize, section: Partition) {
        self.sections.lock().unwrap()[lane] = section;
    }

    pub(crate) fn taken(&self) -> Vec<usize> {
        self.wards.lock().unwrap().iter().map(|w| w.taken).collect()
    }

    /// Whether a bed is free that could be this lane's.
    pub(crate) fn fits(&self, lane: usize) -> bool {
        let treats = self.lanes.lock().unwrap()[lane].1.clone();
        choose(&self.wards.lock().unwrap(), &treats).is_some()
    }

    /// How many lanes somebody else remembers.
    pub(crate) fn lanes_remembered(&self) -> usize {
        let lanes = self.lanes.lock().unwrap();
        lanes.iter().filter(|l| Arc::strong_count(&l.0) > 1).count()
    }

    /// A bed comes back just after somebody was told that there is none.
    pub(crate) fn late_bed(&self, ward: usize) {
        *self.late.lock().unwrap() = Some(ward);
    }

    /// Says that all is busy once it was asked this often, so that a test of a loop without end ends.
    pub(crate) fn stop_after(&self, asked: usize) {
        self.most_asked.store(asked, SeqCst);
    }

    /// How often a bed was asked for since the last call.
    pub(crate) fn asked(&self) -> usize {
        self.asked.swap(0, SeqCst)
    }
}

impl Capacity for Wards {
    type Demand = usize;
    type Lease = Bed;
    type Lane = Arc<usize>;
    type Unservable = &'static str;

    fn try_lease(&self, &lane: &usize) -> Result<Bed, LeaseError<&'static str>> {
        if self.asked.fetch_add(1, SeqCst) >= self.most_asked.load(SeqCst) {
            return Err(LeaseError::Busy);
        }
        let treats = self.lanes.lock().unwrap()[lane].1.clone();
        if treats.is_empty() {
            return Err(LeaseError::Unservable("no ward"));
        }
        let mut wards = self.wards.lock().unwrap();
        let Some(ward) = choose(&wards, &treats) else {
            if let Some(late) = self.late.lock().unwrap().take() {
                wards[late].beds += 1;
            }
            return Err(LeaseError::Busy);
        };
        wards[ward].taken += 1;
        self.leased.fetch_add(1, SeqCst);
        Ok(Bed(ward))
    }

    fn release(&self, Bed(ward): Bed) -> PoolId {
        self.wards.lock().unwrap()[ward].taken -= 1;
        PoolId(ward as u32)
    }

    fn pool(&self, &Bed(ward): &Bed) -> PoolId {
        PoolId(ward as u32)
    }

    fn lane(&self, &lane: &usize) -> Arc<usize> {
        Arc::clone(&self.lanes.lock().unwrap()[lane].0)
    }

    fn pools(&self, lane: &Arc<usize>) -> PoolSet {
        let lanes = self.lanes.lock().unwrap();
        lanes[**lane].1.iter().map(|&w| PoolId(w as u32)).collect()
    }

    fn partition(&self, lane: &Arc<usize>) -> Partition {
        self.sections.lock().unwrap()[**lane]
    }

    fn in_use(&self) -> usize {
        self.taken().iter().sum()
    }

    fn leased(&self) -> u64 {
        self.leased.load(SeqCst) as u64
    }

    fn limit(&self) -> usize {
        self.wards.lock().unwrap().iter().map(|w| w.beds).sum()
    }
}

/// What random runs are made in front of.
pub(crate) trait TestCapacity:
    Capacity<Demand = usize, Lease = Bed, Unservable = &'static str> + From<Wards> + AsRef<Wards>
{
}

impl TestCapacity for Wards {}
impl TestCapacity for OneLane {}

impl AsRef<Wards> for Wards {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The same with one lane, so that a plain room serves it if the configuration lets it.
#[derive(Debug)]
pub(crate) struct OneLane(Wards);

impl From<Wards> for OneLane {
    fn from(wards: Wards) -> Self {
        Self(wards)
    }
}

impl AsRef<Wards> for OneLane {
    fn as_ref(&self) -> &Wards {
        &self.0
    }
}

impl Capacity for OneLane {
    type Demand = usize;
    type Lease = Bed;
    type Lane = Arc<usize>;
    type Unservable = &'static str;

    const SINGLE_LANE: bool = true;

    fn try_lease(&self, demand: &usize) -> Result<Bed, LeaseError<&'static str>> {
        self.0.try_lease(demand)
    }

    fn release(&self, lease: Bed) -> PoolId {
        self.0.release(lease)
    }

    fn pool(&self, lease: &Bed) -> PoolId {
        self.0.pool(lease)
    }

    fn lane(&self, demand: &usize) -> Arc<usize> {
        self.0.lane(demand)
    }

    fn pools(&self, lane: &Arc<usize>) -> PoolSet {
        self.0.pools(lane)
    }

    fn in_use(&self) -> usize {
        self.0.in_use()
    }

    fn leased(&self) -> u64 {
        self.0.leased()
    }

    fn limit(&self) -> usize {
        self.0.limit()
    }
}
