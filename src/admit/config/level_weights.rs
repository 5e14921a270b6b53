//! The weights of levels, and the settings that they exclude.

use super::{Discipline, InvalidWaitingRoom, WaitingRoomConfig};

impl WaitingRoomConfig {
    /// Returns an error if there is no level of this name.
    pub(super) fn refuse_unknown(
        &self,
        field: &'static str,
        name: &str,
    ) -> Result<(), InvalidWaitingRoom> {
        let mut levels = self.levels.names();
        if levels.any(|level| level.eq_ignore_ascii_case(name)) {
            return Ok(());
        }
        Err(InvalidWaitingRoom::UnknownLevel {
            field,
            name: name.to_owned(),
            levels: self.levels.names().collect::<Vec<_>>().join("\", \""),
        })
    }

    /// Returns an error if two of the `names` mean the same level.
    pub(super) fn refuse_twice<'a>(
        &self,
        field: &'static str,
        names: impl Iterator<Item = &'a String> + Clone,
    ) -> Result<(), InvalidWaitingRoom> {
        let is_twice = |level: &&str| {
            let same = names
                .clone()
                .filter(|name| name.eq_ignore_ascii_case(level));
            same.count() > 1
        };
        match self.levels.names().find(is_twice) {
            Some(level) => Err(InvalidWaitingRoom::LevelTwice {
                field,
                level: level.to_owned(),
            }),
            None => Ok(()),
        }
    }

    pub(super) fn validate_level_weights(&self) -> Result<(), InvalidWaitingRoom> {
        if self.level_weights.is_empty() {
            return Ok(());
        }
        for (name, &weight) in &self.level_weights {
            self.refuse_unknown("level_weights", name)?;
            if weight == 0 {
                return Err(InvalidWaitingRoom::ZeroLevelWeight(name.clone()));
            }
        }
        self.refuse_twice("level_weights", self.level_weights.keys())?;
        let beside = if !self.reserve.is_empty() {
            "`reserve`"
        } else if self.promote_after.is_some() {
            "`promote_after_seconds`"
        } else if self.discipline == Discipline::Deadline {
            "`discipline = \"deadline\"`"
        } else {
            return Ok(());
        };
        Err(InvalidWaitingRoom::LevelWeightsBeside(beside))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admit::flow::FlowWeights;
    use crate::admit::{PriorityLevels, ReservedSlots, Tenant};

    fn weighted() -> WaitingRoomConfig {
        let levels = PriorityLevels::new(["gold", "silver", "bronze"], "silver").unwrap();
        WaitingRoomConfig::default()
            .levels(levels)
            .level_weight("GOLD", 3)
    }

    #[test]
    fn a_level_without_a_weight_weighs_1() {
        let room = weighted().level_weight("bronze", 2);
        assert_eq!(room.validate(), Ok(()));
        let weights = FlowWeights::new(&room);
        let of = |level| weights.of(weights.key(level, &Tenant::NONE, Discipline::Fifo));
        assert_eq!([0, 1, 2].map(of), [3, 1, 2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refusal = |room: WaitingRoomConfig| room.validate().unwrap_err().to_string();
        assert_eq!(
            refusal(weighted().level_weight("urgent", 2)),
            "`level_weights` names the level \"urgent\": it must be one of \"gold\", \"silver\", \"bronze\""
        );
        assert_eq!(
            refusal(weighted().level_weight("silver", 0)),
            "`level_weights` gives \"silver\" the weight 0: a weight must be at least 1"
        );
        assert_eq!(
            refusal(weighted().level_weight("gold", 2)),
            "`level_weights` names the level \"gold\" twice (case is ignored)"
        );
        let excluded = [
            (
                weighted().reserve("gold", ReservedSlots::Slots(1)),
                "`reserve`",
            ),
            (
                weighted().promote_after(Duration::from_secs(1)),
                "`promote_after_seconds`",
            ),
            (
                weighted().discipline(Discipline::Deadline),
                "`discipline = \"deadline\"`",
            ),
        ];
        for (room, beside) in excluded {
            let message = refusal(room);
            assert!(
                message.starts_with("`level_weights` and ") && message.contains(beside),
                "{message}"
            );
        }
        assert_eq!(weighted().discipline(Discipline::Fair).validate(), Ok(()));
    }
}
