{{/* Where clients outside of the cluster's network find owner number `ordinal`: a list for all of them, or a rule. */}}
{{- define "oncelog.ownerExternalHost" -}}
{{- $external := .root.Values.owner.external -}}
{{- if $external.hosts -}}
{{- index $external.hosts .ordinal -}}
{{- else -}}
{{- $external.host | replace "{ordinal}" (toString .ordinal) -}}
{{- end -}}
{{- end }}

{{- define "oncelog.ownerExternalPort" -}}
{{- $external := .root.Values.owner.external -}}
{{- if $external.ports -}}
{{- index $external.ports .ordinal | int -}}
{{- else if $external.firstPort -}}
{{- add (int $external.firstPort) .ordinal -}}
{{- else -}}
6650
{{- end -}}
{{- end }}

{{/* host:port of each owner, with commas; an IPv6 address with brackets. */}}
{{- define "oncelog.ownerExternalAddresses" -}}
{{- $addresses := list -}}
{{- range $ordinal := until (int .Values.owner.replicaCount) -}}
{{- $one := dict "root" $ "ordinal" $ordinal -}}
{{- $host := include "oncelog.ownerExternalHost" $one -}}
{{- if and (contains ":" $host) (not (hasPrefix "[" $host)) }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- $addresses = append $addresses (printf "%s:%s" $host (include "oncelog.ownerExternalPort" $one)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end }}

{{/* What the schema cannot say of owner.external, ingress and gatewayApi. */}}
{{- define "oncelog.checkExternal" -}}
{{- $external := .Values.owner.external -}}
{{- $count := int .Values.owner.replicaCount -}}
{{- if eq $external.type "" -}}
{{- if or $external.host $external.hosts $external.ports $external.firstPort -}}
{{- fail "owner.external.host, hosts, ports or firstPort is given and owner.external.type is empty: set it to NodePort or LoadBalancer, or leave them out." -}}
{{- end -}}
{{- else -}}
{{- if not (or $external.host $external.hosts) -}}
{{- fail (printf "owner.external.type is %s, and neither owner.external.host nor hosts says where clients outside find the owners: name a node or a load balancer; {ordinal} in host stands for an owner's number." $external.type) -}}
{{- end -}}
{{- if and $external.hosts (ne (len $external.hosts) $count) -}}
{{- fail (printf "owner.external.hosts has %d entries and owner.replicaCount is %d: give one for each owner, in their order." (len $external.hosts) $count) -}}
{{- end -}}
{{- if and $external.ports (ne (len $external.ports) $count) -}}
{{- fail (printf "owner.external.ports has %d entries and owner.replicaCount is %d: give one for each owner, in their order." (len $external.ports) $count) -}}
{{- end -}}
{{- if and (eq $external.type "NodePort") (not $external.ports) (not $external.firstPort) -}}
{{- fail "owner.external.type is NodePort, and neither owner.external.firstPort nor ports says which: an owner has to advertise its port before the cluster could choose one." -}}
{{- end -}}
{{- $addresses := splitList "," (include "oncelog.ownerExternalAddresses" .) -}}
{{- if lt (len (uniq $addresses)) $count -}}
{{- fail (printf "owner.external gives two owners the same address (%s): put {ordinal} into host, or give hosts, ports or firstPort." (join ", " $addresses)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.enabled is true and ingress.host is empty: name the host by which clients reach it." -}}
{{- end -}}
{{- if and .Values.gatewayApi.enabled (not .Values.gatewayApi.parentRefs) -}}
{{- fail "gatewayApi.enabled is true and gatewayApi.parentRefs is empty: name the Gateway that the routes belong to." -}}
{{- end -}}
{{- $routes := and .Values.gatewayApi.enabled -}}
{{- include "oncelog.requireKind" (dict "root" . "value" "gatewayApi.enabled" "wanted" $routes "kind" "gateway.networking.k8s.io/v1/GRPCRoute" "of" "the Gateway API") -}}
{{- end }}
