//! The lines of the keys and items of a document.

/// The lines of keys and items, from 1, in the order of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Outline {
    /// A scalar, or a value whose lines nobody asked for.
    #[default]
    Leaf,
    /// A map: each key, its line, and what is in its value.
    Map(Vec<(String, u32, Outline)>),
    /// A list: the line of each item, and what is in it.
    List(Vec<(u32, Outline)>),
}

impl Outline {
    /// A key of a map: its line, and what is in its value.
    pub fn key(&self, name: &str) -> Option<(u32, &Self)> {
        let Self::Map(fields) = self else { return None };
        // The last one of a name stands, as it does in the value.
        fields.iter().rev().find(|(key, ..)| key == name).map(|(_, line, inner)| (*line, inner))
    }

    /// An item of a list, by its position from 0: its line, and what is in it.
    pub fn item(&self, position: usize) -> Option<(u32, &Self)> {
        let Self::List(items) = self else { return None };
        items.get(position).map(|(line, inner)| (*line, inner))
    }
}
