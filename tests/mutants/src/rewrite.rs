//! Puts the mutants of a file into its text, each behind its number.
//!
//! Comments mark what belongs to a mutant, so that an error of the compiler leads to its number:
//! `/*(7*/ … /*7)*/` is all that mutant 7 wraps, `/*<7*/ … /*7>*/` what only it runs.

use std::ops::Range;

/// A place where a mutant differs from the source.
pub struct Site {
    /// The mutant's number.
    pub id: u32,
    /// The bytes that it wraps; empty where it is inserted.
    pub range: Range<usize>,
    /// What it does there.
    pub edit: Edit,
    /// The path of the function it is in.
    pub function: String,
    /// The name of the operator that made it.
    pub operator: &'static str,
    /// What it changes, in one line.
    pub shown: String,
}

/// What a mutant does at its place.
pub enum Edit {
    /// Evaluates this expression instead.
    Replace(String),
    /// Negates the condition.
    Negate,
    /// Leaves the statement out.
    Delete,
    /// Begins the function with this statement.
    Begin(String),
    /// Never takes this arm of the match.
    Unmatch,
}

/// Returns the text with all mutants in it.
pub fn rewrite(text: &str, mut sites: Vec<Site>) -> String {
    // What encloses others comes before them; of two at one place, the later encloses the earlier.
    sites.sort_by_key(|it| (it.range.start, usize::MAX - it.range.end, u32::MAX - it.id));
    let mut rest = sites.iter().peekable();
    render(text, 0..text.len(), &mut rest)
}

type Rest<'a> = std::iter::Peekable<std::slice::Iter<'a, Site>>;

/// Renders a part of the text with the sites that lie in it.
fn render(text: &str, part: Range<usize>, rest: &mut Rest<'_>) -> String {
    let (mut out, mut at) = (String::new(), part.start);
    while let Some(site) = rest.next_if(|it| it.range.end <= part.end) {
        out.push_str(&text[at..site.range.start]);
        at = site.range.end;
        let original = render(text, site.range.clone(), rest);
        out.push_str(&wrap(site, &original));
    }
    out.push_str(&text[at..part.end]);
    out
}

fn wrap(site: &Site, original: &str) -> String {
    let id = site.id;
    let on = format!("crate::mutant::on({id})");
    match &site.edit {
        Edit::Replace(other) => {
            format!("/*({id}*/(if {on} {{/*<{id}*/{other}/*{id}>*/}} else {{{original}}})/*{id})*/")
        }
        Edit::Negate => format!("/*({id}*/({on} != ({original}))/*{id})*/"),
        Edit::Delete => format!("/*({id}*/if !{on} {{{original}}}/*{id})*/"),
        Edit::Begin(statement) => format!("/*<{id}*/if {on} {{{statement}}}/*{id}>*/{original}"),
        Edit::Unmatch => format!("/*<{id}*/ if !{on}/*{id}>*/{original}"),
    }
}
