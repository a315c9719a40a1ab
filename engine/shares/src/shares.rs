//! What is taken, by tenant, and who may take more.

use std::collections::HashMap;

/// So much is left to others at least, where there is as much: the next tenant gets two of it, and one each the two after that.
const LEAST: usize = 4;

/// How much one tenant may have while no other has any, and so what waits for those that come: what is left has to do until
/// something is given back. The shorter anything is held, the less of it has to be idle for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Most {
    /// For what nobody has but with a share of something else, of which there is no more.
    All,
    /// For what is held for moments, such as a request: what is given back comes to others soon enough, and what is left is for
    /// the time in which something hangs.
    SevenEighths,
    /// For what is held for seconds or minutes, such as the place of a run.
    ThreeQuarters,
    /// For what one tenant may hold for as long as it likes, as where its own server does not answer; for what is worth nothing
    /// to a tenant that has much of it, such as a place in a line; and where one of another may need half of it at once.
    Half,
    /// For what is asked of the servers of many tenants at once, each of which may not answer. What is left is three times what
    /// a tenant has, so that each has nearly as much as the one before.
    Quarter,
}

impl Most {
    /// How much of so much one tenant may have, whatever is free.
    fn of_one(self, all: usize) -> usize {
        match self {
            Self::Half => all.div_ceil(2),
            Self::All | Self::SevenEighths | Self::ThreeQuarters | Self::Quarter => all,
        }
    }

    /// How much of so much is left when a tenant takes one more that has so much already.
    fn left(self, all: usize, own: usize) -> usize {
        let part = |parts: usize| own.min(all.div_ceil(parts).max(LEAST));
        match self {
            Self::All => 0,
            Self::SevenEighths => part(8),
            Self::ThreeQuarters | Self::Half => part(4),
            Self::Quarter => own.saturating_mul(3),
        }
    }
}

/// What is taken of something that there is so much of, by tenant.
///
/// A tenant that has nothing gets whatever is free, at once. One that has some leaves as much as it has, up to a part of all that
/// [`Most`] tells; what it takes at once it might take one by one. So one tenant alone has all but that part, and of the part the next has half, the one after that half of what is left,
/// and so on: of 64 with [`Most::ThreeQuarters`] the first may have 48, the next 8, then 4, 2, 1 and 1. What is given back is
/// for who has [least](Self::turn), so that those who always want more come to have the same: of the 64 two of them have 24
/// each, three 16, and seven 8.
///
/// Where everybody takes one at a time no two tenants have all, from four on and [`Most::All`] aside. What belongs to no tenant,
/// as its name is empty, has no such bound, and has its turns as one that has nothing: callers of earlier versions name none, and
/// all of theirs would share it.
#[derive(Debug)]
pub struct Shares {
    all: usize,
    most: Most,
    taken: usize,
    /// Of those that have any.
    tenants: HashMap<String, usize>,
}

impl Shares {
    /// So much, of which nothing is taken.
    pub fn new(all: usize, most: Most) -> Self {
        Self { all, most, taken: 0, tenants: HashMap::new() }
    }

    /// How much there is, taken or not.
    pub fn all(&self) -> usize {
        self.all
    }

    /// How much is taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// How much nobody has.
    pub fn free(&self) -> usize {
        self.all - self.taken
    }

    /// How much a tenant has.
    pub fn of(&self, tenant: &str) -> usize {
        self.tenants.get(tenant).copied().unwrap_or_default()
    }

    /// Whether a tenant has as much as one may have, however much is free.
    pub fn has_its_most(&self, tenant: &str) -> bool {
        !tenant.is_empty() && self.of(tenant) >= self.most.of_one(self.all)
    }

    /// How much counts where those come first that have least: what belongs to no tenant counts for none.
    pub(crate) fn rank(&self, tenant: &str) -> usize {
        if tenant.is_empty() { 0 } else { self.of(tenant) }
    }

    /// How much has to be given back before a tenant may have so much more; by itself where it has [its most](Self::has_its_most).
    pub fn lacks(&self, tenant: &str, amount: usize) -> usize {
        let own = self.of(tenant);
        if own == 0 || tenant.is_empty() {
            return amount.saturating_sub(self.free());
        }
        let over = own.saturating_add(amount).saturating_sub(self.most.of_one(self.all));
        // What the last of them would leave if it were taken by itself.
        let left = self.most.left(self.all, own.saturating_add(amount) - 1);
        let short = left.saturating_add(amount).saturating_sub(self.free());
        over.max(short)
    }

    /// Whether a tenant may have so much more now.
    pub fn is_free(&self, tenant: &str, amount: usize) -> bool {
        self.lacks(tenant, amount) == 0
    }

    /// Takes so much for a tenant, if it [is free](Self::is_free); says whether.
    pub fn take(&mut self, tenant: &str, amount: usize) -> bool {
        if !self.is_free(tenant, amount) {
            return false;
        }
        self.taken += amount;
        match self.tenants.get_mut(tenant) {
            Some(own) => *own += amount,
            None => {
                self.tenants.insert(tenant.to_owned(), amount);
            }
        }
        true
    }

    /// Gives back so much of what a tenant took.
    pub fn give_back(&mut self, tenant: &str, amount: usize) {
        let Some(own) = self.tenants.get_mut(tenant) else { return };
        *own -= amount;
        if *own == 0 {
            self.tenants.remove(tenant);
        }
        self.taken -= amount;
    }

    /// Which of the tenants that wait for one each, in the order of their turns, has the next: of those that may have one the
    /// first that has least, and whoever has no name has none. Whoever has none waits for one turn at most of each before it, if whoever had a turn is behind all others.
    pub fn turn<'t, W>(&self, waiting: impl IntoIterator<Item = (W, &'t str)>) -> Option<W> {
        let may_have_one = waiting.into_iter().filter(|(_, tenant)| self.is_free(tenant, 1));
        may_have_one.min_by_key(|(_, tenant)| self.rank(tenant)).map(|(waits, _)| waits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How much a tenant gets that takes one after the other.
    fn take_all(shares: &mut Shares, tenant: &str) -> usize {
        std::iter::repeat_with(|| shares.take(tenant, 1)).take_while(|taken| *taken).count()
    }

    /// How much each of the tenants has that come one after the other and take all they may, until nothing is left.
    fn one_after_the_other(all: usize, most: Most) -> Vec<usize> {
        let mut shares = Shares::new(all, most);
        let counts = (0..).map(|tenant: usize| take_all(&mut shares, &tenant.to_string()));
        counts.take_while(|count| *count > 0).collect()
    }

    #[test]
    fn one_tenant_alone_has_most_and_leaves_something_to_those_that_come() {
        for (all, most, counts) in [
            (256, Most::SevenEighths, vec![224, 16, 8, 4, 2, 1, 1]),
            (64, Most::SevenEighths, vec![56, 4, 2, 1, 1]),
            (256, Most::ThreeQuarters, vec![192, 32, 16, 8, 4, 2, 1, 1]),
            (64, Most::ThreeQuarters, vec![48, 8, 4, 2, 1, 1]),
            (64, Most::Half, vec![32, 16, 8, 4, 2, 1, 1]),
            (64, Most::Quarter, vec![16, 12, 9, 7, 5, 4, 3, 2, 2, 1, 1, 1, 1]),
            (64, Most::All, vec![64]),
        ] {
            assert_eq!(one_after_the_other(all, most), counts, "{all} {most:?}");
        }
    }

    #[test]
    fn of_little_something_is_left_as_well() {
        for most in [Most::SevenEighths, Most::ThreeQuarters, Most::Half] {
            let counts = [1, 2, 4, 8].map(|all| one_after_the_other(all, most));
            assert_eq!(counts, [vec![1], vec![1, 1], vec![2, 1, 1], vec![4, 2, 1, 1]], "{most:?}");
        }
    }

    #[test]
    fn what_is_given_back_is_for_who_has_less() {
        let mut shares = Shares::new(64, Most::ThreeQuarters);
        let counts: Vec<usize> = (0..6).map(|tenant| take_all(&mut shares, &tenant.to_string())).collect();
        assert_eq!((shares.free(), shares.taken(), take_all(&mut shares, "another")), (0, 64, 0));
        shares.give_back("0", 1);
        assert!(!shares.take("0", 1), "it has much");
        assert_eq!(take_all(&mut shares, "another"), 1);
        for (tenant, count) in counts.into_iter().enumerate() {
            shares.give_back(&tenant.to_string(), count - usize::from(tenant == 0));
        }
        shares.give_back("another", 1);
        assert_eq!((shares.free(), shares.tenants.len()), (64, 0));
    }

    #[test]
    fn the_first_of_those_that_have_least_has_its_turn() {
        let mut shares = Shares::new(16, Most::ThreeQuarters);
        assert_eq!(take_all(&mut shares, "much"), 12);
        assert!(shares.take("little", 1));
        assert_eq!(shares.turn([(1, "much"), (2, "little"), (3, "new"), (4, "newer")]), Some(3));
        assert_eq!(shares.turn([(1, "much"), (2, "little")]), Some(2));
        assert_eq!(shares.turn([(1, "much")]), None, "the rest is for others");
        shares.give_back("much", 2);
        assert_eq!(shares.turn([(1, "much"), (2, "little")]), Some(2), "whoever waits for longer has more");
        assert_eq!(shares.turn([(1, "much")]), Some(1));
    }

    #[test]
    fn what_belongs_to_no_tenant_keeps_its_turn_however_much_it_is() {
        let mut shares = Shares::new(8, Most::ThreeQuarters);
        assert!(shares.take("", 5) && shares.take("a", 1) && shares.take("b", 1));
        assert_eq!(shares.turn([(1, ""), (2, "a"), (3, "new")]), Some(1), "many are behind it");
        assert_eq!(shares.turn([(1, "a"), (2, "new"), (3, "")]), Some(2), "it waits like others that have none");
        assert_eq!(shares.turn([(1, "a"), (2, "")]), Some(2));
    }

    #[test]
    fn who_has_little_takes_no_more_at_once_than_one_by_one() {
        let mut shares = Shares::new(128, Most::ThreeQuarters);
        assert!(shares.take("a", 16));
        assert_eq!((shares.lacks("a", 96), shares.take("a", 96)), (16, false), "a quarter is for others");
        assert!(shares.take("a", 80));
        assert_eq!((shares.of("a"), shares.free(), shares.is_free("a", 1)), (96, 32, false));
        assert!(shares.take("b", 32), "it has nothing");
    }

    #[test]
    fn what_is_large_is_for_who_has_nothing() {
        let mut shares = Shares::new(10, Most::Half);
        assert!(!shares.take("a", 11));
        assert!(shares.take("a", 2));
        assert!(!shares.take("a", 7), "it would have more than half");
        assert!(shares.take("b", 7), "it has nothing");
        assert!(!shares.take("a", 1), "it has more than is free");
        assert!(shares.take("c", 1));
        assert_eq!((shares.of("a"), shares.of("b"), shares.of("c"), shares.free()), (2, 7, 1, 0));
    }

    #[test]
    fn what_has_to_be_given_back_is_what_is_missing() {
        let mut shares = Shares::new(16, Most::Half);
        assert_eq!(shares.lacks("a", 17), 1);
        assert_eq!(take_all(&mut shares, "a"), 8);
        assert_eq!((shares.lacks("a", 3), shares.has_its_most("a")), (3, true));
        assert_eq!(take_all(&mut shares, "b"), 4);
        assert_eq!((shares.lacks("b", 2), shares.has_its_most("b")), (2, false));
        assert!(shares.take("c", 2));
        assert_eq!((shares.lacks("b", 1), shares.lacks("c", 1), shares.lacks("d", 2)), (3, 1, 0));
        shares.give_back("a", 3);
        assert!(shares.is_free("b", 1));
    }

    #[test]
    fn what_belongs_to_no_tenant_has_all_that_is_free() {
        let mut shares = Shares::new(4, Most::Half);
        assert!(shares.take("a", 1));
        assert_eq!((take_all(&mut shares, ""), shares.has_its_most("")), (3, false));
        shares.give_back("", 1);
        assert!(!shares.take("a", 1));
    }

    proptest! {
        /// However much is taken at once, one that has some has no more by that than by taking one after the other, and leaves
        /// what is kept for others; and one that has nothing has what is free.
        #[test]
        fn what_is_taken_at_once_may_be_taken_one_by_one(
            all in 1..80_usize,
            most in proptest::sample::select(vec![
                Most::All, Most::SevenEighths, Most::ThreeQuarters, Most::Half, Most::Quarter,
            ]),
            before in proptest::collection::vec((0..4_u8, 1..20_usize), 0..8),
            amount in 1..80_usize,
        ) {
            let fill = || {
                let mut shares = Shares::new(all, most);
                for (tenant, amount) in &before {
                    shares.take(&tenant.to_string(), *amount);
                }
                shares
            };
            let (mut at_once, mut one_by_one) = (fill(), fill());
            let (own, free) = (at_once.of("0"), at_once.free());
            let is_taken = at_once.take("0", amount);
            if own == 0 {
                prop_assert_eq!(is_taken, amount <= free);
            } else {
                prop_assert_eq!(is_taken, (0..amount).all(|_| one_by_one.take("0", 1)));
                let kept = match most {
                    Most::All => 0,
                    Most::SevenEighths => all / 8,
                    Most::ThreeQuarters | Most::Half => all / 4,
                    Most::Quarter => 3 * (all / 4),
                };
                let has_left = at_once.free() >= kept.min(at_once.of("0") - 1);
                prop_assert!(!is_taken || has_left);
            }
        }

        /// Whatever is taken and given back, no more is taken than there is, whoever has nothing may have all that is free,
        /// whoever may have some may have less as well, and what is told to be missing does when it is given back.
        #[test]
        fn no_more_is_taken_than_there_is(
            all in 1..80_usize,
            most in proptest::sample::select(vec![
                Most::All, Most::SevenEighths, Most::ThreeQuarters, Most::Half, Most::Quarter,
            ]),
            changes in proptest::collection::vec((0..5_u8, 1..12_usize, any::<bool>()), 0..100),
        ) {
            let mut shares = Shares::new(all, most);
            for (tenant, amount, gives_back) in changes {
                let tenant = tenant.to_string();
                let own = shares.of(&tenant);
                if gives_back {
                    shares.give_back(&tenant, amount.min(own));
                } else {
                    let (free, lacks) = (shares.free(), shares.lacks(&tenant, amount));
                    prop_assert!(lacks > 0 || shares.is_free(&tenant, amount - 1));
                    prop_assert!(own > 0 || (lacks == 0) == (amount <= free));
                    prop_assert_eq!(shares.take(&tenant, amount), lacks == 0);
                    if lacks > 0 && lacks <= own {
                        shares.give_back(&tenant, lacks);
                        prop_assert!(shares.take(&tenant, amount));
                    }
                }
                prop_assert!(shares.taken() <= all);
                let of_all = (0..5_u8).map(|tenant| shares.of(&tenant.to_string())).sum::<usize>();
                prop_assert_eq!((of_all, shares.free()), (shares.taken(), all - shares.taken()));
            }
        }
    }
}
