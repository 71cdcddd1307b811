import { nextTheme, theme } from "../state/theme";
import { Button } from "./Button";

const ICONS = { system: "auto", light: "sun", dark: "moon" } as const;
const WORDS = { system: "Colours: as the system", light: "Colours: light", dark: "Colours: dark" };

export function ThemeButton() {
  return <Button kind="quiet" icon={ICONS[theme.value]} label={WORDS[theme.value]} onClick={nextTheme} />;
}
