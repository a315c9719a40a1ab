//! How organizations share what there is so much of, such as turns for calls.

use std::collections::HashMap;

/// What is taken of something that there is so much of, by organization.
///
/// None is given to an organization that has as much as is free. So what one may have becomes less the more of them have any:
/// of 64 the first may have 32, the next 16, then 8 and so on, and it takes seven that have all they may to leave none. One that
/// has nothing gets whatever is free. What belongs to no organization, as its name is empty, has no such bound: callers of
/// earlier versions name none, and all of theirs would share it.
#[derive(Debug)]
pub struct Shares {
    all: usize,
    taken: usize,
    /// Of the organizations that have any.
    organizations: HashMap<String, usize>,
}

impl Shares {
    /// So much, of which nothing is taken.
    pub fn new(all: usize) -> Self {
        Self { all, taken: 0, organizations: HashMap::new() }
    }

    /// How much nobody has.
    pub fn free(&self) -> usize {
        self.all - self.taken
    }

    /// How much an organization has.
    pub fn of(&self, organization: &str) -> usize {
        self.organizations.get(organization).copied().unwrap_or_default()
    }

    /// Whether an organization may have so much more now.
    pub fn is_free(&self, organization: &str, amount: usize) -> bool {
        let own = self.of(organization);
        let most = if organization.is_empty() || own == 0 { self.free() } else { self.free().saturating_sub(own) };
        amount <= most
    }

    /// Takes so much for an organization, if it [is free](Self::is_free); says whether.
    pub fn take(&mut self, organization: &str, amount: usize) -> bool {
        let is_free = self.is_free(organization, amount);
        if is_free {
            self.taken += amount;
            *self.organizations.entry(organization.to_owned()).or_default() += amount;
        }
        is_free
    }

    /// Gives back so much of what an organization took.
    pub fn give_back(&mut self, organization: &str, amount: usize) {
        let Some(own) = self.organizations.get_mut(organization) else { return };
        *own -= amount;
        if *own == 0 {
            self.organizations.remove(organization);
        }
        self.taken -= amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much an organization gets that takes one after the other.
    fn take_all(shares: &mut Shares, organization: &str) -> usize {
        std::iter::repeat_with(|| shares.take(organization, 1)).take_while(|taken| *taken).count()
    }

    #[test]
    fn several_organizations_that_take_all_they_may_leave_something_to_others() {
        let mut shares = Shares::new(64);
        let counts: Vec<usize> = (0..7).map(|number| take_all(&mut shares, &number.to_string())).collect();
        assert_eq!(counts, [32, 16, 8, 4, 2, 1, 1], "each has less than the one before");
        assert_eq!((shares.free(), take_all(&mut shares, "another")), (0, 0), "seven have all of it");
        shares.give_back("0", 1);
        assert!(!shares.take("0", 1), "it has much");
        assert_eq!(take_all(&mut shares, "another"), 1, "what is given back is for who has none");
        for (number, count) in counts.into_iter().enumerate() {
            shares.give_back(&number.to_string(), count - usize::from(number == 0));
        }
        shares.give_back("another", 1);
        assert_eq!((shares.free(), shares.organizations.len()), (64, 0));
    }

    #[test]
    fn what_is_large_is_for_who_has_nothing() {
        let mut shares = Shares::new(10);
        assert!(!shares.take("a", 11));
        assert!(shares.take("a", 2));
        assert!(!shares.take("a", 7), "less would be free than it has");
        assert!(shares.take("b", 7), "it has nothing");
        assert!(!shares.take("a", 1), "it has more than is free");
        assert!(shares.take("c", 1));
        assert_eq!((shares.of("a"), shares.of("b"), shares.of("c"), shares.free()), (2, 7, 1, 0));
    }

    #[test]
    fn what_belongs_to_no_organization_has_all_that_is_free() {
        let mut shares = Shares::new(4);
        assert!(shares.take("a", 1));
        assert_eq!(take_all(&mut shares, ""), 3);
        shares.give_back("", 1);
        assert!(!shares.take("a", 1));
    }
}
