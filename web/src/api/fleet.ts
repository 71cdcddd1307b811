import { get } from "./client";
import type { components } from "./schema.generated";

type Schemas = components["schemas"];

export type Fleet = Schemas["Fleet"];
/** One moment of all sandboxes together. */
export type FleetMoment = Schemas["FleetMoment"];
export type BackendHealth = Schemas["BackendHealth"];

export const readFleet = () => get<Fleet>("/v1/fleet");
