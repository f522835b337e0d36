/** Text that is safe in HTML, figures in a form people read, and the frame and style of every report page. */

const entities: Record<string, string> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (char) => entities[char] ?? char);
}

export function number(value: number | null | undefined, digits = 1): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Three digits that matter, whatever the size. */
export function readable(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return number(value, size >= 100 || size === 0 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

export function percent(share: number | null | undefined, digits = 2): string {
  return share === null || share === undefined ? '–' : `${number(100 * share, digits)} %`;
}

export function duration(seconds: number): string {
  if (seconds < 60) return `${number(seconds)} s`;
  const whole = Math.round(seconds);
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)];
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

/** Cells are HTML; the head is text. The first column is for names, the others for figures unless `text` says otherwise. */
export function table(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  text: readonly number[] = [],
): string {
  const cells = (tag: string, row: readonly string[]): string =>
    row
      .map((cell, i) => `<${tag}${i === 0 || text.includes(i) ? ' class="text"' : ''}>${cell}</${tag}>`)
      .join('');
  const body = rows.map((row) => `<tr>${cells('td', row)}</tr>`).join('');
  const top = head.length === 0 ? '' : `<thead><tr>${cells('th', head.map(escapeHtml))}</tr></thead>`;
  return `<div class="scroll"><table>${top}<tbody>${body}</tbody></table></div>`;
}

/** A big figure: value, unit, what it is, and a smaller remark. */
export interface Tile {
  readonly value: string;
  readonly unit?: string;
  readonly label: string;
  readonly note?: string;
}

export function tiles(list: readonly Tile[]): string {
  const tile = ({ value, unit, label, note }: Tile): string =>
    `<div class="tile"><span class="label">${escapeHtml(label)}</span><span class="value">${escapeHtml(value)}${unit === undefined ? '' : `<small>${escapeHtml(unit)}</small>`}</span>${note === undefined ? '' : `<span class="note">${escapeHtml(note)}</span>`}</div>`;
  return `<div class="tiles">${list.map(tile).join('')}</div>`;
}

export function section(title: string, body: string): string {
  return `<section><h2>${escapeHtml(title)}</h2>${body}</section>`;
}

const light =
  '--bg:#f7f6f2;--fg:#1a211d;--dim:#606b65;--card:#fffefb;--line:#e2e0d7;--accent:#2b7a52;--good:#2b7a52;--bad:#b23a48;--soft:#eef3ee';
const dark =
  '--bg:#111513;--fg:#e8ece9;--dim:#97a39c;--card:#181d1a;--line:#29312d;--accent:#7cc79d;--good:#7cc79d;--bad:#ee8a95;--soft:#1c2620';

const pageStyle = `
:root{color-scheme:light dark;${light}}
@media(prefers-color-scheme:dark){:root{${dark}}}
@media print{:root{color-scheme:light;${light};--bg:#fff;--card:#fff}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.6 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif;-webkit-font-smoothing:antialiased}
main{max-width:1240px;margin:0 auto;padding:56px 32px 96px}
header{margin-bottom:36px}
.mark{color:var(--accent);font-weight:650;letter-spacing:.02em;font-size:.9rem}
h1{font-size:clamp(1.7rem,4.4vw,2.6rem);line-height:1.15;margin:8px 0 14px;letter-spacing:-.025em;font-weight:680;overflow-wrap:anywhere}
.meta{display:flex;flex-wrap:wrap;gap:4px 22px;color:var(--dim);font-size:.92rem;margin:0;padding:0;list-style:none}
.meta li{overflow-wrap:anywhere;min-width:0}
section{margin-top:64px}
h2{font-size:1.3rem;letter-spacing:-.015em;margin:0 0 18px;font-weight:650}
h3{font-size:1rem;margin:28px 0 10px;font-weight:620}
p{max-width:72ch}
.warn,.fine{border-left:3px solid var(--bad);background:var(--card);padding:10px 16px;border-radius:0 8px 8px 0;margin:0 0 10px;max-width:none}
.fine{border-color:var(--good)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,162px),1fr));gap:14px}.warn+.tiles,.fine+.tiles{margin-top:24px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:16px;padding:20px 20px 18px;display:flex;flex-direction:column;gap:4px}
.tile .label{color:var(--dim);font-size:.86rem}
.tile .value{font-size:1.9rem;line-height:1.2;font-weight:640;letter-spacing:-.03em;font-variant-numeric:tabular-nums}
.tile small{font-size:1rem;font-weight:500;letter-spacing:0;color:var(--dim);margin-left:.3em}
.tile .note{color:var(--dim);font-size:.82rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr));gap:20px}
figure{background:var(--card);border:1px solid var(--line);border-radius:16px;padding:22px 24px 14px;margin:0;min-width:0}
figcaption{margin-bottom:14px}figcaption b{display:block;font-weight:620}figcaption span{color:var(--dim);font-size:.88rem}
figure svg{width:100%;height:auto;display:block}
.narrow{display:none}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:16px;margin:0 0 16px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.92rem}
th,td{text-align:right;padding:10px 18px;border-bottom:1px solid var(--line);white-space:nowrap}
.text{text-align:left}td.wrap,.wrap{white-space:normal}
th{color:var(--dim);font-weight:550;font-size:.84rem}
tbody tr:last-child td{border-bottom:0}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.dim{color:var(--dim)}
details{background:var(--card);border:1px solid var(--line);border-radius:12px;margin:0 0 10px;padding:0 20px}
summary{cursor:pointer;padding:13px 0;display:flex;flex-wrap:wrap;gap:2px 20px;align-items:baseline;list-style:none}
summary::-webkit-details-marker{display:none}
summary::before{content:"+";color:var(--accent);font-weight:650;width:.7em}details[open]>summary::before{content:"–"}
summary b{font-weight:600;flex:1 1 260px;overflow-wrap:anywhere}summary span{color:var(--dim);font-size:.9rem;font-variant-numeric:tabular-nums}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:16px;padding-bottom:18px}
.pair h4{margin:0 0 6px;font-size:.84rem;color:var(--dim);font-weight:550}
pre{margin:0;background:var(--soft);border-radius:8px;padding:12px 14px;white-space:pre-wrap;overflow-wrap:anywhere;font:12.5px/1.55 ui-monospace,"SF Mono",Menlo,Consolas,monospace;max-height:420px;overflow-y:auto}
footer{margin-top:72px;padding-top:24px;border-top:1px solid var(--line);color:var(--dim);font-size:.88rem}
@media(max-width:640px){main{padding:32px 16px 64px}section{margin-top:48px}.wide{display:none}.narrow{display:block}figure{padding:18px 14px 10px}.tiles{grid-template-columns:1fr 1fr;gap:10px}.tile{padding:16px}.tile .value{font-size:1.55rem}.tile small{font-size:.85rem}th,td{padding:9px 12px}}
@media print{main{max-width:none;padding:0}section{margin-top:32px}.tile,figure,details,tr{break-inside:avoid}.charts{grid-template-columns:1fr 1fr}pre{max-height:none}}
`;

export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<link rel="icon" href="data:,"><title>${escapeHtml(title)}</title><style>${pageStyle}</style></head>
<body><main>${body}</main></body></html>
`;
}
