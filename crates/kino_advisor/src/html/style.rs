//! Colors and sizes. Plots only name classes, so light and dark themes are decided here.

/// Style of a page that fills the browser window.
pub(super) const WHOLE_PAGE: &str = "body{margin:0;background:#fcfcfb}\
@media (prefers-color-scheme: dark){body{background:#1a1a19}}";

/// Style of everything inside. Series use s0 to s5, then s0 again.
pub(super) const STYLE: &str = "\
.kinograph{--ink:#1d1d1b;--soft:#6b6a66;--line:#dedcd6;--paper:#fcfcfb;--note:#f1efe9;\
--s0:#2a78d6;--s1:#eb6834;--s2:#1baf7a;--s3:#c98500;--s4:#d55181;--s5:#6a5ac7;\
color:var(--ink);background:var(--paper);max-width:44rem;margin:0 auto;padding:1rem;box-sizing:border-box;\
font:16px/1.5 system-ui,sans-serif;color-scheme:light dark}\
@media (prefers-color-scheme: dark){.kinograph{--ink:#edece8;--soft:#a19f98;--line:#3b3a37;--paper:#1a1a19;--note:#262624;\
--s0:#3987e5;--s1:#d95926;--s2:#199e70;--s3:#c98500;--s4:#d55181;--s5:#9085e9}}\
.kinograph h1{font-size:1.5rem;margin:.5rem 0}\
.kinograph h2{font-size:1.2rem;margin:2rem 0 .5rem}\
.kinograph h3{font-size:1rem;margin:0 0 .5rem}\
.kinograph .verdict{background:var(--note);border-left:4px solid var(--s0);padding:.75rem 1rem;margin:1rem 0;font-weight:600}\
.kinograph .alarm{border-left-color:var(--s1)}\
.kinograph figure{margin:1.5rem 0}\
.kinograph figcaption{color:var(--soft);font-size:.875rem}\
.kinograph .wide{overflow-x:auto}\
.kinograph table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;margin:.5rem 0}\
.kinograph th,.kinograph td{text-align:right;padding:.25rem .75rem;border-bottom:1px solid var(--line);white-space:nowrap;\
background:none;color:inherit}\
.kinograph th:first-child,.kinograph td:first-child{text-align:left;padding-left:0}\
.kinograph th{color:var(--soft);font-weight:600}\
.kinograph svg{width:100%;height:auto;display:block;font:13px system-ui,sans-serif}\
.kinograph svg text{fill:var(--ink)}\
.kinograph svg .soft{fill:var(--soft)}\
.kinograph svg .grid{stroke:var(--line)}\
.kinograph svg .axis{stroke:var(--soft)}\
.kinograph svg .front{stroke:var(--soft);stroke-dasharray:4 3;fill:none}\
.kinograph svg .path{fill:none;stroke-width:2;stroke-linejoin:round}\
.kinograph svg .f0{fill:var(--s0)}.kinograph svg .f1{fill:var(--s1)}.kinograph svg .f2{fill:var(--s2)}\
.kinograph svg .f3{fill:var(--s3)}.kinograph svg .f4{fill:var(--s4)}.kinograph svg .f5{fill:var(--s5)}\
.kinograph svg .l0{stroke:var(--s0)}.kinograph svg .l1{stroke:var(--s1)}.kinograph svg .l2{stroke:var(--s2)}\
.kinograph svg .l3{stroke:var(--s3)}.kinograph svg .l4{stroke:var(--s4)}.kinograph svg .l5{stroke:var(--s5)}";

/// Series with a color of their own.
pub(super) const SERIES: usize = 6;
