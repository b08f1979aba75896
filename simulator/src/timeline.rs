//! The timeline of a run, and its drawing as SVG: the store's lease, each candidate's belief, and
//! the answers that its client received, on one axis of true time.
//!
//! The world records each interval as it begins and ends; nothing is interpolated.

use std::fmt::Write;

use tenure::election::Transition;

use super::{Instant, SECOND};

/// An interval of one candidate.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    pub node: u8,
    pub from: Instant,
    pub until: Instant,
}

/// The recorded intervals of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The holder of the store's lease.
    pub lease: Vec<Bar>,
    /// Candidates that believe that they lead.
    pub beliefs: Vec<Bar>,
    /// Candidates whose client acts on an answer.
    pub acting: Vec<Bar>,
    /// Candidates that are stopped or gone.
    pub absent: Vec<Bar>,
    /// The answers that clients received: the node, when, and whether it was active.
    pub answers: Vec<(u8, Instant, bool)>,
    /// The transitions of the candidates.
    pub transitions: Vec<(u8, Instant, Transition)>,
}

/// Records that something holds from now until `until`; `until == now` ends it.
pub fn record(bars: &mut Vec<Bar>, node: u8, now: Instant, until: Instant) {
    match bars.iter_mut().rev().find(|it| it.node == node) {
        Some(last) if last.until >= now => last.until = until,
        _ if until > now => bars.push(Bar { node, from: now, until }),
        _ => {}
    }
}

/// The part of a run to draw.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub title: &'a str,
    pub from: Instant,
    pub until: Instant,
    /// Labelled instants.
    pub marks: &'a [(Instant, &'a str)],
    pub nodes: u8,
}

const LEFT: f64 = 150.0;
const WIDTH: f64 = 900.0;
const TOP: f64 = 86.0;
const ROW: f64 = 62.0;
const STYLE: &str = "\
text{font:13px system-ui,sans-serif;fill:#1f2430}.small{font-size:11px;fill:#5b6270}\
.title{font-size:16px;font-weight:600}.grid{stroke:#d9dce3}.mark{stroke:#b3261e;stroke-dasharray:4 3}\
.word{fill:#b3261e;font-size:12px}.n0{fill:#2f6fde}.n1{fill:#0f9d78}.n2{fill:#b7791f}\
.acts{fill-opacity:.38}.gone{fill:#8a909c;fill-opacity:.18}.no{fill:none;stroke:#8a909c}\
@media(prefers-color-scheme:dark){svg{background:#14171d}text{fill:#e6e8ec}.small{fill:#9aa1ad}\
.grid{stroke:#2c313b}.mark{stroke:#ff8a80}.word{fill:#ff8a80}.n0{fill:#6ea1ff}.n1{fill:#3ecfa5}\
.n2{fill:#e3b05a}}";

impl Frame<'_> {
    fn x(&self, at: Instant) -> f64 {
        let at = at.clamp(self.from, self.until) - self.from;
        LEFT + WIDTH * at as f64 / (self.until - self.from) as f64
    }

    fn bar(&self, bar: &Bar, y: f64, height: f64, class: &str) -> String {
        if bar.until <= self.from || bar.from >= self.until {
            return String::new();
        }
        let (from, until) = (self.x(bar.from), self.x(bar.until));
        format!(
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{height}\" \
             rx=\"2\"/>\n",
            until - from
        )
    }

    /// Draws the timeline as SVG.
    pub fn draw(&self, timeline: &Timeline) -> String {
        let height = TOP + ROW * f64::from(self.nodes + 1) + 64.0;
        let width = LEFT + WIDTH + 30.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             role=\"img\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
             <text class=\"title\" x=\"16\" y=\"28\">{0}</text>\n",
            self.title
        );
        self.axis(&mut svg, height);
        let _ = writeln!(svg, "<text x=\"16\" y=\"{}\">the store's lease</text>", TOP + 24.0);
        for bar in &timeline.lease {
            svg += &self.bar(bar, TOP + 8.0, 24.0, &format!("n{}", bar.node));
        }
        for node in 0..self.nodes {
            self.candidate(&mut svg, timeline, node);
        }
        for (index, (at, words)) in self.marks.iter().enumerate() {
            let (x, y) = (self.x(*at), 50.0 + 16.0 * (index % 2) as f64);
            // If the next mark is near, the label is on the other side.
            let near = self.marks.get(index + 1).is_some_and(|(next, _)| self.x(*next) - x < 90.0);
            let (side, anchor) = if near { (-4.0, "end") } else { (4.0, "start") };
            let _ = writeln!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y}\" y2=\"{:.0}\"/>\n\
                 <text class=\"word\" x=\"{:.1}\" y=\"{y}\" text-anchor=\"{anchor}\">{words}</text>",
                height - 58.0,
                x + side
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"small\" x=\"{LEFT}\" y=\"{:.0}\">full: lease, belief · faint: the client \
             acts on an answer · dots: answers, filled active, hollow passive · grey: stopped or \
             gone</text>\n</svg>",
            height - 12.0
        );
        svg
    }

    fn axis(&self, svg: &mut String, height: f64) {
        let step = 2 * SECOND;
        let mut at = self.from;
        while at <= self.until {
            let (x, bottom) = (self.x(at), height - 58.0);
            let seconds = (at - self.from) / SECOND;
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\n\
                 <text class=\"small\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{seconds} \
                 s</text>",
                bottom + 16.0
            );
            at += step;
        }
    }

    fn candidate(&self, svg: &mut String, timeline: &Timeline, node: u8) {
        let y = TOP + ROW * f64::from(node + 1);
        let class = format!("n{node}");
        let _ = writeln!(
            svg,
            "<text x=\"16\" y=\"{:.0}\">candidate {}</text>\n\
             <text class=\"small\" x=\"16\" y=\"{:.0}\">and its client</text>",
            y + 20.0,
            node + 1,
            y + 38.0
        );
        let of =
            |bars: &[Bar]| bars.iter().filter(|it| it.node == node).copied().collect::<Vec<_>>();
        for bar in of(&timeline.absent) {
            *svg += &self.bar(&bar, y, 50.0, "gone");
        }
        for bar in of(&timeline.beliefs) {
            *svg += &self.bar(&bar, y + 6.0, 18.0, &class);
        }
        for bar in of(&timeline.acting) {
            *svg += &self.bar(&bar, y + 28.0, 10.0, &format!("{class} acts"));
        }
        for (_, at, active) in timeline.answers.iter().filter(|(it, ..)| *it == node) {
            if (self.from..self.until).contains(at) {
                let class = if *active { class.as_str() } else { "no" };
                let (x, y) = (self.x(*at), y + 45.0);
                let _ =
                    writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y}\" r=\"2.6\"/>");
            }
        }
    }
}
