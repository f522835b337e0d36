/** Text that is safe in HTML, and figures in a form people read. */

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

export function percent(share: number | null | undefined, digits = 2): string {
  return share === null || share === undefined ? '–' : `${number(100 * share, digits)} %`;
}

export function duration(seconds: number): string {
  if (seconds < 60) return `${number(seconds)} s`;
  const [minutes, rest] = [Math.floor(seconds / 60), Math.round(seconds % 60)];
  return minutes < 60 ? `${minutes} min ${rest} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const cells = (tag: string, row: readonly string[]): string =>
    row.map((cell) => `<${tag}>${cell}</${tag}>`).join('');
  return `<div class="scroll"><table><thead><tr>${cells('th', head.map(escapeHtml))}</tr></thead><tbody>${rows.map((row) => `<tr>${cells('td', row)}</tr>`).join('')}</tbody></table></div>`;
}

/** Style of every report page: light and dark, narrow and wide, screen and paper. */
export const pageStyle = `
:root{color-scheme:light dark;--bg:#fbfaf8;--fg:#1d2521;--dim:#66716b;--card:#fff;--line:#e3e2dc;--accent:#2f6f4f}
@media(prefers-color-scheme:dark){:root{--bg:#131815;--fg:#e6ebe7;--dim:#98a59d;--card:#1b221e;--line:#2c3530;--accent:#7fc79f}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:40px 20px 80px}h1{font-size:1.9rem;margin:0 0 4px;letter-spacing:-.02em}h2{font-size:1.15rem;margin:48px 0 14px}
.sub{color:var(--dim);margin:0 0 28px;overflow-wrap:anywhere}.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:14px}
.tile,figure{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:16px 18px;margin:0}.tile b{display:block;font-size:1.65rem;font-weight:650;letter-spacing:-.02em;font-variant-numeric:tabular-nums}
.tile span{color:var(--dim);font-size:.85rem}.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:16px}
figure svg{width:100%;height:auto;display:block}figcaption{font-weight:600;margin-bottom:6px}.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:12px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:.9rem}th,td{text-align:right;padding:8px 14px;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:600}tr:last-child td{border-bottom:0}.warn{border-left:4px solid #c9822b;padding:8px 14px;background:var(--card);border-radius:6px}
details{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:8px 0;padding:10px 16px}summary{cursor:pointer}pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.82rem;margin:8px 0}
footer{margin-top:56px;color:var(--dim);font-size:.85rem}@media print{body{background:#fff}main{padding:0}.tile,figure,details{break-inside:avoid}}`;

export function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<link rel="icon" href="data:,"><title>${escapeHtml(title)}</title><style>${pageStyle}</style></head>
<body><main>${body}</main></body></html>
`;
}
