//! Which combination of a set lets a model run at the least cost.
//!
//! Combinations are not written out. Of each part of an expression only the models count that run, or are the target: the
//! others are neither kept nor stopped. So a part is a list of masks of such models, and a mask that is contained in
//! another one is dropped, as it keeps no more.

/// A set of models, by bit.
pub(super) type Mask = u128;

/// A part of an expression.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Model(Mask),
    /// The node that a set's expression ends in.
    Same(usize),
    All(Vec<usize>),
    OneOf(Vec<usize>),
    /// One of models, of which these are the bits and the nodes.
    OneModel(Mask, Vec<usize>),
}

/// The question, for all sets of a matrix.
pub(super) struct Solver<'a> {
    nodes: &'a [Node],
    target: Mask,
    /// The target, and the models that run.
    relevant: Mask,
    /// By bit: what it costs to stop a model.
    costs: &'a [u64],
    /// By node, once it is known: the masks of its combinations, without those that are contained in others.
    known: Vec<Option<Vec<Mask>>>,
}

impl<'a> Solver<'a> {
    pub(super) fn new(nodes: &'a [Node], costs: &'a [u64], target: Mask, running: Mask) -> Self {
        Self {
            nodes,
            target,
            relevant: running | target,
            costs,
            known: vec![None; nodes.len()],
        }
    }

    /// The least cost for which a combination of the node has the target.
    pub(super) fn least_cost(&mut self, node: usize) -> Option<u64> {
        self.learn(node);
        let with_target = self.masks(node).filter(|mask| mask & self.target != 0);
        with_target.map(|mask| self.cost(mask)).min()
    }

    /// The models that are kept by the combination that is written first of those with the target and this cost.
    pub(super) fn first(&mut self, node: usize, cost: u64) -> Mask {
        self.learn(node);
        let masks = self.masks(node);
        let mut least = masks.filter(|mask| mask & self.target != 0 && self.cost(*mask) == cost);
        match (least.next(), least.next()) {
            (Some(only), None) => only,
            _ => self.first_of(node, 0, &[0], cost),
        }
    }

    /// What it costs to stop the relevant models that are not in the mask.
    fn cost(&self, mask: Mask) -> u64 {
        let costs =
            bits(self.relevant & !mask).map(|bit| self.costs[bit.trailing_zeros() as usize]);
        costs.fold(0, u64::saturating_add)
    }

    /// The masks of a node. They have to be known, but for those of a model.
    fn masks(&self, node: usize) -> impl Iterator<Item = Mask> + Clone + use<'_, 'a> {
        let one = match &self.nodes[node] {
            Node::Model(model) => Some(model & self.relevant),
            _ => None,
        };
        let known = self.known[node].as_deref().unwrap_or_default();
        one.into_iter().chain(known.iter().copied())
    }

    /// Finds the masks of a node and of all its parts. No set is a part of itself, so this ends.
    fn learn(&mut self, node: usize) {
        let nodes = self.nodes;
        let masks = match &nodes[node] {
            _ if self.known[node].is_some() => return,
            Node::Model(_) => return,
            Node::Same(other) => {
                self.learn(*other);
                self.masks(*other).collect()
            }
            Node::OneModel(models, _) => match models & self.relevant {
                0 => vec![0],
                relevant => bits(relevant).collect(),
            },
            Node::OneOf(parts) => {
                parts.iter().for_each(|&part| self.learn(part));
                largest(parts.iter().flat_map(|&part| self.masks(part)))
            }
            Node::All(parts) => {
                parts.iter().for_each(|&part| self.learn(part));
                let all = parts.iter();
                all.fold(vec![0], |united, &part| self.united(&united, part))
            }
        };
        self.known[node] = Some(masks);
    }

    /// One of `masks` and one of the node's, united, in all ways.
    fn united(&self, masks: &[Mask], node: usize) -> Vec<Mask> {
        let all = masks.iter();
        largest(all.flat_map(|one| self.masks(node).map(move |other| one | other)))
    }

    /// `first`, where the parts before have chosen `chosen` and those behind may choose one of `rest`.
    fn first_of(&self, node: usize, chosen: Mask, rest: &[Mask], cost: u64) -> Mask {
        match &self.nodes[node] {
            Node::Model(model) => chosen | (model & self.relevant),
            Node::Same(other) => self.first_of(*other, chosen, rest, cost),
            Node::OneOf(parts) | Node::OneModel(_, parts) => {
                let is_possible = |part: &usize| {
                    self.masks(*part).any(|mask| {
                        let mut all = rest.iter().map(|rest| chosen | mask | rest);
                        all.any(|all| all & self.target != 0 && self.cost(all) == cost)
                    })
                };
                let first = parts.iter().copied().find(is_possible);
                // There is one: the cost is that of a combination.
                first.map_or(chosen, |part| self.first_of(part, chosen, rest, cost))
            }
            Node::All(parts) => {
                // What those behind each part may choose, the last one's first.
                let mut behind = vec![rest.to_vec()];
                for &part in parts[1..].iter().rev() {
                    behind.push(self.united(&behind[behind.len() - 1], part));
                }
                let parts = parts.iter().zip(behind.iter().rev());
                parts.fold(chosen, |chosen, (&part, rest)| {
                    self.first_of(part, chosen, rest, cost)
                })
            }
        }
    }
}

/// The bits of a mask, each as one. Ends because each round clears one.
fn bits(mut mask: Mask) -> impl Iterator<Item = Mask> {
    std::iter::from_fn(move || {
        let bit = mask & mask.wrapping_neg();
        mask ^= bit;
        (bit != 0).then_some(bit)
    })
}

/// The masks that are contained in no other, each once.
fn largest(masks: impl Iterator<Item = Mask>) -> Vec<Mask> {
    let mut kept: Vec<Mask> = Vec::new();
    for mask in masks {
        if kept.iter().any(|&other| mask & !other == 0) {
            continue;
        }
        kept.retain(|&other| mask | other != mask);
        kept.push(mask);
    }
    kept
}
