/**
 * Stands in for `<style>`, which the content policy forbids: its text becomes a constructed style sheet of the
 * document. The build makes xterm.js create it (build/xterm-under-policy.ts).
 */
class StyleElement extends HTMLElement {
  private readonly sheet = new CSSStyleSheet();

  override get textContent(): string {
    return [...this.sheet.cssRules].map((rule) => rule.cssText).join("\n");
  }

  override set textContent(text: string) {
    this.sheet.replaceSync(text);
  }

  connectedCallback(): void {
    document.adoptedStyleSheets = [...document.adoptedStyleSheets, this.sheet];
  }

  disconnectedCallback(): void {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => sheet !== this.sheet);
  }
}

if (!customElements.get("warren-style")) customElements.define("warren-style", StyleElement);
