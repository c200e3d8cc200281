/** The body of `/auth`. */
import { Annotations } from "../../../proto/gen/messages.ts";
import { checked, shape, text } from "../shape.ts";

export const credentialsBody = shape("types.AuthConfig", Annotations, {
  username: checked(text("username")),
  password: checked(text("password")),
  auth: checked(text("auth")),
  email: checked(text("email")),
  serveraddress: checked(text("serveraddress")),
  identitytoken: checked(text("identitytoken")),
  registrytoken: checked(text("registrytoken")),
});
